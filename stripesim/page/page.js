// Keeps the page current, and presses buttons without losing the place or the filter.
// Without this script the page shows the moment it was loaded, and forms lead back to it.
"use strict";
const every = 2000; // ms

function show(text) {
  const next = new DOMParser().parseFromString(text, "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
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

let pressed = false; // an error stays until the next press
async function tick() {
  if (!document.hidden && !document.querySelector(".error") && getSelection().isCollapsed) {
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
    if (reply.type === "opaqueredirect") await refresh();
    else show(await reply.text());
  } finally {
    pressed = false;
  }
});

setTimeout(tick, every);
