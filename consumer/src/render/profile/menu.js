"use strict";
/** What can be done with a box, beside the pointer that asked for it: buttons, which keys walk and Escape leaves. */
function boxMenu() {
  const menu = element("div");
  menu.id = "menu";
  menu.hidden = true;
  menu.setAttribute("role", "menu");
  document.body.append(menu);
  let from = null;
  function close() {
    if (menu.hidden) return;
    menu.hidden = true;
    from.focus({ preventScroll: true });
  }
  menu.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const all = [...menu.children], at = all.indexOf(document.activeElement), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) all[(at + step + all.length) % all.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
  });
  menu.addEventListener("focusout", (event) => { if (!menu.contains(event.relatedTarget)) menu.hidden = true; });
  window.addEventListener("blur", close);
  return {
    /** `items`: words and what each does; the focus goes back to `scroller`. */
    open(event, scroller, items) {
      from = scroller;
      menu.textContent = "";
      for (const [words, act] of items) {
        const item = element("button", "", words);
        item.type = "button";
        item.setAttribute("role", "menuitem");
        item.addEventListener("click", () => { close(); act(); });
        menu.append(item);
      }
      placeTip(menu, event);
      menu.firstChild.focus({ preventScroll: true });
    },
  };
}
