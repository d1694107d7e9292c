// The service's token. A browser exchanges it once for a cookie that scripts cannot read; the page does not
// store it.
import { ask, paths } from "./api.js";
import { byId, tell } from "./dom.js";

/** The link that the service prints has the token in its fragment. Exchanges it for the cookie and removes it from the address. */
export async function useLink() {
  const parts = new URLSearchParams(location.hash.replace(/^#/, "")), token = parts.get("token");
  if (token === null) return;
  parts.delete("token");
  const rest = parts.toString();
  history.replaceState(null, "", location.pathname + location.search + (rest && "#" + rest));
  // If the token is wrong, the dialog requests another.
  await ask(paths.session, { method: "POST", body: { token } }).catch(() => {});
}

/** Calls `letIn()` after a valid token was entered. */
export function session({ letIn }) {
  const dialog = byId("session"), field = byId("token");
  byId("session-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    byId("session-go").disabled = true;
    try {
      await ask(paths.session, { method: "POST", body: { token: field.value.trim() } });
      field.value = "";
      tell(byId("session-words"), "");
      dialog.close();
      letIn();
    } catch (error) {
      tell(byId("session-words"), error.message);
      field.select();
    } finally {
      byId("session-go").disabled = false;
    }
  });
  // Without the token, the page is empty.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return {
    needed() {
      if (dialog.open) return;
      dialog.showModal();
      field.focus();
    },
    get open() { return dialog.open; },
  };
}
