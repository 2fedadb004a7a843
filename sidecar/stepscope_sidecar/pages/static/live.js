// Keeps a page up to date while its run goes on: asks for a small mark, and when that has changed for the page again,
// of which only the parts that differ are put in place. Stops when a page comes that does not ask for it.
"use strict";

(() => {
  let mark = document.body.dataset.mark || "";
  let pressed = null;

  // What is pressed gets its click, and what is marked can be copied: neither is put away under a person's hand.
  const inHand = (part) => part.contains(pressed) || (!getSelection().isCollapsed && getSelection().containsNode(part, true));

  const parts = (root) => new Map([...root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));

  function put(fresh) {
    const now = parts(document);
    let whole = true;
    for (const [name, part] of parts(fresh)) {
      const old = now.get(name);
      if (!old || old.outerHTML === part.outerHTML) continue;
      if (inHand(old)) {
        whole = false;
        continue;
      }
      const held = old.contains(document.activeElement) ? document.activeElement : null;
      const scrolled = old.querySelector(".scroll");
      const at = scrolled ? scrolled.scrollLeft : 0;
      const made = document.importNode(part, true);
      old.replaceWith(made);
      const scroll = made.querySelector(".scroll");
      if (scroll) scroll.scrollLeft = at;
      const path = held && held.getAttribute("href");
      const again = path && [...made.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === path);
      if (again) again.focus({ preventScroll: true });
    }
    // The page goes on asking until all of it is there.
    if (!whole) {
      mark = "";
      return;
    }
    for (const name of ["live", "mark", "pulse"]) {
      if (fresh.body.dataset[name] === undefined) delete document.body.dataset[name];
      else document.body.dataset[name] = fresh.body.dataset[name];
    }
    document.title = fresh.title;
  }

  async function look() {
    if (document.hidden) return;
    const { pulse } = document.body.dataset;
    if (pulse) {
      const answer = await fetch(pulse);
      if (!answer.ok) return;
      const told = (await answer.json()).mark;
      if (told === mark) return;
      mark = told;
    }
    const answer = await fetch(location.href);
    if (answer.ok) put(new DOMParser().parseFromString(await answer.text(), "text/html"));
  }

  async function go() {
    const lost = document.getElementById("lost");
    try {
      await look();
      if (lost) lost.hidden = true;
    } catch {
      // The sidecar has ended, or the connection is gone; what is shown stays, and says so.
      if (lost) lost.hidden = false;
    }
    wait();
  }

  function wait() {
    const seconds = Number(document.body.dataset.live);
    if (seconds) setTimeout(go, seconds * 1000);
  }

  addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
  for (const over of ["click", "pointercancel", "dragend"]) addEventListener(over, () => { pressed = null; }, true);
  addEventListener("pointerup", () => setTimeout(() => { pressed = null; }), true);

  wait();
})();
