// Hands a recording to a viewer in another window of the browser, by the protocol of Perfetto's page: it is asked until
// it answers, and then given the bytes. Runs only where an address of a viewer was configured.
"use strict";

(() => {
  const EVERY = 100;
  const TRIES = 600;

  async function show(button) {
    const { viewer, recording, name } = button.dataset;
    const origin = new URL(viewer).origin;
    const other = window.open(viewer);
    if (!other) return;
    const answer = await fetch(recording);
    if (!answer.ok) {
      other.close();
      button.textContent = "the recording is not to be had";
      return;
    }
    const buffer = await answer.arrayBuffer();
    let tries = 0;
    const asking = setInterval(() => {
      tries += 1;
      if (tries > TRIES || other.closed) clearInterval(asking);
      else other.postMessage("PING", origin);
    }, EVERY);
    window.addEventListener("message", function hear(event) {
      if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
      clearInterval(asking);
      window.removeEventListener("message", hear);
      other.postMessage({ perfetto: { buffer, title: name, fileName: recording.split("/").pop() } }, origin, [buffer]);
    });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-viewer]");
    if (button) show(button);
  });
})();
