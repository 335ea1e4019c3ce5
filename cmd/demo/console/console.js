"use strict";

// What the server says is put into text nodes, never parsed as HTML.

const storiesShown = 25;
const labels = { claim: "Database", stripe: "Stripe", event: "Broker", fault: "Fault" };
const dotWords = { n: "done now", r: "answered from memory", w: "told to wait", x: "no answer" };
const series = [["requests", "requests"], ["suppressed", "duplicates suppressed"], ["orders", "orders"], ["charges", "charges"]];

const $ = (id) => document.getElementById(id);

function node(tag, attributes, ...children) {
  const n = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== "") n.setAttribute(name, value);
  }
  n.append(...children);
  return n;
}

function svg(tag, attributes, ...children) {
  const n = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) n.setAttribute(name, value);
  n.append(...children);
  return n;
}

// ---- the buttons -------------------------------------------------------------

let standing = null;
let connected = false;
const buttons = new Map();

async function press(name) {
  $("refused").hidden = true;
  let why = "";
  try {
    const res = await fetch("/do/" + name, { method: "POST" });
    if (!res.ok) why = (await res.json()).error;
  } catch {
    why = "Nobody answers: the demo has ended.";
  }
  $("refused").textContent = why;
  $("refused").hidden = why === "";
}

function addButton(action) {
  let b = $("again");
  if (action.name !== "again") {
    b = node("button", { type: "button", class: action.breaks ? "do breaks" : "do", id: "do-" + action.name },
      svg("svg", {}, svg("use", { href: "#icon-" + action.name })), node("b", {}, action.button), node("span", {}, action.note));
    $("buttons").append(b);
  }
  b.disabled = true; // until we are told how things stand
  b.addEventListener("click", () => press(action.name));
  buttons.set(action.name, { b, alone: action.alone });
}

function showButtons() {
  const busy = standing ? standing.busy : [];
  const disaster = [...buttons].some(([name, { alone }]) => alone && busy.includes(name));
  for (const [name, { b, alone }] of buttons) {
    const mine = busy.includes(name);
    b.disabled = !connected || !standing || !standing.ready || mine || (alone && disaster) || (name === "again" && !standing.current);
    b.classList.toggle("busy", mine);
  }
}

// ---- how things stand ----------------------------------------------------------

const tones = { up: "good", dead: "bad", paused: "wait", starting: "wait", "cut off": "bad" };

function part(name, state, ...more) {
  return node("li", { "data-tone": tones[state], "data-state": state }, state === "up" ? name : name + ": " + state, ...more);
}

let partsShown = "";

function showParts() {
  const parts = JSON.stringify([standing.processes, standing.postgres]);
  if (parts === partsShown) return; // a button that is replaced under somebody's finger is not pressed
  partsShown = parts;
  const list = standing.processes.map((p) => {
    if (p.state !== "dead") return part("API " + p.name, p.state);
    const start = node("button", { type: "button", id: "start" }, "start it now");
    start.addEventListener("click", () => press("start"));
    return part("API " + p.name, p.state, start);
  });
  document.querySelector(".parts").replaceChildren(...list, part("PostgreSQL", standing.postgres), part("Stripe, simulated", "up"));
}

const toneOf = (charges) => (charges === 0 ? "none" : charges === 1 ? "good" : "bad");
const times = (n, one) => (n === 1 ? "once" : n + " times");

function showNumber() {
  const p = standing.current;
  if (!p) return;
  $("charges").textContent = p.charges;
  $("number").dataset.tone = toneOf(p.charges);
  $("number").dataset.order = p.order;
  $("verdict").textContent = p.charges === 0 ? "Not charged yet." : p.charges === 1 ? "Charged once." : "Charged " + p.charges + " times. This must never happen.";
  let facts = "12.50 USD, order …" + p.order.slice(-6) + ". Asked for " + times(p.requests);
  if (p.suppressed > 0) facts += "; " + p.suppressed + (p.suppressed === 1 ? " duplicate" : " duplicates") + " changed nothing";
  $("facts").textContent = facts + ".";
}

function showTiles() {
  $("tiles-title").hidden = standing.purchases.length === 0;
  $("tiles").replaceChildren(...standing.purchases.map((p) =>
    node("li", { "data-tone": toneOf(p.charges), title: p.title + ", " + p.order + ": " + p.charges }, String(p.charges))));
}

function show(next) {
  if (standing && standing.run !== next.run) { // another demo on the same address
    location.reload();
    return;
  }
  standing = next;
  $("banner").hidden = standing.ready;
  $("banner").textContent = "The demo is playing on the terminal" + (standing.scene ? ". " + standing.scene : "") + ". Then it is your turn.";
  showParts();
  showButtons();
  showNumber();
  showTiles();
  showPlot();
}

// ---- the plot --------------------------------------------------------------------

let samples = [];

function addSample() {
  const now = { at: Date.now(), ...standing.totals };
  const last = samples[samples.length - 1];
  if (!last || series.some(([name]) => last[name] !== now[name])) samples.push(now);
  if (samples.length > 480) samples = samples.filter((_, i) => i % 2 === 0);
}

function showPlot() {
  addSample();
  const nothing = standing.totals.orders === 0;
  $("legend").hidden = nothing;
  $("plot").hidden = nothing;
  if (nothing) return;
  $("legend").replaceChildren(...series.map(([name, text]) =>
    node("li", { class: name }, text, node("b", { id: "total-" + name }, String(standing.totals[name])))));
  const width = $("plot").clientWidth, height = 152, left = 30, right = 4, top = 8, below = 20;
  const shown = samples.slice(Math.max(0, samples.findIndex((s) => s.requests > 0)));
  const first = shown[0].at, last = Math.max(Date.now(), first + 10000);
  const most = nice(Math.max(10, ...shown.map((s) => Math.max(s.requests, s.suppressed, s.orders, s.charges))));
  const x = (t) => left + (width - left - right) * (t - first) / (last - first);
  const y = (n) => top + (height - top - below) * (1 - n / most);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Requests, duplicates suppressed, orders and charges over time" });
  for (const n of [0, most / 2, most]) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(n), y2: y(n) }), svg("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, String(n)));
  }
  picture.append(svg("text", { x: left, y: height - 4 }, ago(last - first)), svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, "now"));
  for (const [name] of series) {
    let d = `M${x(first)} ${y(0)}`;
    for (const s of shown) d += `H${x(s.at).toFixed(1)}V${y(s[name]).toFixed(1)}`;
    picture.append(svg("path", { class: "line " + name, d: d + `H${x(last).toFixed(1)}` }));
  }
  $("plot").replaceChildren(picture);
}

// nice is the next number that halves well.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 3, 4, 6, 8, 10].map((m) => m * power).find((m) => m >= n);
}

const ago = (ms) => (ms < 120000 ? Math.round(ms / 1000) + " s ago" : ms < 7200000 ? Math.round(ms / 60000) + " min ago" : Math.round(ms / 3600000) + " h ago");

// ---- the timeline -------------------------------------------------------------------

const stories = new Map(); // by id: { card, list, began }

function addEntry(e) {
  e.time = Date.parse(e.at);
  if (e.kind === "story") addStory(e);
  const story = stories.get(e.story);
  if (!story) return; // it has left the page
  if (e.kind === "verdict") addVerdict(story, e);
  else if (e.kind !== "story") addRow(story, e);
}

function addStory(e) {
  if (stories.has(e.id)) return;
  document.querySelector(".empty")?.remove();
  const list = node("ol", { class: "rows" });
  const card = node("article", { class: "story open", "data-story": e.id }, node("div", { class: "why" }, node("h3", {}, e.text), node("p", {}, e.answer)), list);
  $("timeline").prepend(card);
  stories.set(e.id, { card, list, began: e.time });
  if (stories.size > storiesShown) {
    const [oldest, { card }] = stories.entries().next().value;
    card.remove();
    stories.delete(oldest);
  }
}

function addRow(story, e) {
  const what = node("div", { class: "what" }, node("span", { class: "text" }, e.text));
  if (e.dots) what.append(...dots(e.dots));
  else if (e.answer) what.append(node("span", { class: "answer" }, e.answer));
  const row = node("li", { "data-kind": e.kind, "data-tone": e.tone, "data-id": e.id },
    node("time", { datetime: e.at }, "+" + (Math.max(0, e.time - story.began) / 1000).toFixed(2) + " s"),
    node("span", { class: "who" }, e.who || labels[e.kind]), what);
  row.time = e.time;
  const known = story.list.querySelector(`[data-id="${e.id}"]`);
  if (known) {
    known.replaceWith(row);
    return;
  }
  // Facts come from several places and not in order: they are put where they belong.
  const later = [...story.list.children].find((r) => r.time > e.time);
  story.list.insertBefore(row, later || null);
}

function dots(letters) {
  const all = node("div", { class: "dots" });
  const key = node("div", { class: "key" });
  for (const letter of letters) all.append(node("i", { class: letter }));
  for (const [letter, words] of Object.entries(dotWords)) {
    const n = letters.split(letter).length - 1;
    if (n > 0) key.append(node("span", {}, node("span", { class: "dots" }, node("i", { class: letter })), n + " " + words));
  }
  return [all, key];
}

function addVerdict(story, e) {
  story.card.classList.remove("open");
  story.card.querySelector(".end")?.remove();
  story.card.append(node("div", { class: "end", "data-tone": e.tone }, node("b", {}, String(e.charges)), node("strong", {}, e.text), node("p", {}, e.answer)));
}

// ---- the connection -------------------------------------------------------------------

function listen() {
  const events = new EventSource("/events");
  const on = (name, f) => events.addEventListener(name, (m) => f(JSON.parse(m.data)));
  on("samples", (list) => { samples = (list || []).map((s) => ({ ...s, at: Date.parse(s.at) })); });
  on("entry", addEntry);
  on("standing", show);
  events.onopen = () => {
    connected = true;
    document.body.classList.remove("lost");
    showButtons();
  };
  events.onerror = () => {
    connected = false;
    document.body.classList.add("lost");
    $("banner").textContent = "The demo does not answer. If it has ended, start it again: go run ./cmd/demo -serve";
    $("banner").hidden = false;
    showButtons();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

addEventListener("resize", () => { if (standing) showPlot(); });
fetch("/actions").then((res) => res.json()).then((list) => {
  list.forEach(addButton);
  listen();
});
