"use strict";
/** Context menu of a box, next to the pointer. Arrow keys move between its buttons, Escape closes it. */
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
    /** `items`: texts and actions; the focus returns to `scroller`. */
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
