// The address of what is seen, for others.
import { byId, hide } from "./dom.js";

/** Copies `href`; where the browser does not let a page do that, it is there to be copied. `said(text)` tells which. */
export async function share(href, said) {
  const field = byId("share");
  try {
    await navigator.clipboard.writeText(href);
    hide(field, true);
    said("The address is copied.");
  } catch {
    hide(field, false);
    field.value = href;
    field.focus();
    field.select();
    said("The address is marked: copy it with Ctrl-C.");
  }
}
