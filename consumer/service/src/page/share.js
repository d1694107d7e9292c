// Sharing the address of the current view.
import { byId, hide } from "./dom.js";

/** Copies `href`, or shows it for copying if the browser does not permit that. `said(text)` reports which. */
export async function share(href, said) {
  const field = byId("share");
  try {
    await navigator.clipboard.writeText(href);
    hide(field, true);
    said("Link copied.");
  } catch {
    hide(field, false);
    field.value = href;
    field.focus();
    field.select();
    said("The link is selected: copy it with Ctrl-C.");
  }
}
