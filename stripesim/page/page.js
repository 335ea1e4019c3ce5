// Keeps the page current, and presses buttons without losing the place or the filter.
// Without this script the page shows the moment it was loaded, and forms lead back to it.
"use strict";
const every = 2000; // ms
let errorUntil = 0; // until then a refresh leaves the error where it is

function show(text) {
  const next = new DOMParser().parseFromString(text, "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    if (old.dataset.live === "error" && Date.now() < errorUntil) continue;
    const fresh = next.querySelector(`[data-live="${old.dataset.live}"]`);
    if (fresh && fresh.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) {
      const left = [...old.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      old.replaceChildren(...fresh.childNodes);
      old.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = left[i] || 0; });
    }
  }
}

async function refresh() {
  const reply = await fetch(location.pathname + location.search);
  if (reply.ok) show(await reply.text());
}

let pressed = false; // one button at a time
async function tick() {
  if (!document.hidden && getSelection().isCollapsed) {
    await refresh().catch(() => {}); // stopped, or starting again
  }
  setTimeout(tick, every);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  if (pressed) return;
  pressed = true;
  try {
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const reply = await fetch(form.action, { method: "POST", body, redirect: "manual" });
    document.activeElement.blur();
    errorUntil = 0;
    if (reply.type !== "opaqueredirect") { // it says why not, and does not know the filter
      show(await reply.text());
      errorUntil = Date.now() + 10_000;
    }
  } finally {
    pressed = false; // before the page is current again: who sees an answer presses the next button
  }
  await refresh();
});

setTimeout(tick, every);
