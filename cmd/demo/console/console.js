"use strict";

// Everything from the server is put into text nodes, never parsed as HTML.

const maxCards = 25;
const labels = { claim: "Database", stripe: "Stripe", event: "Broker", fault: "Fault" };
const dotTexts = { n: "executed", r: "stored response replayed", w: "not final: retry", x: "no response" };
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

let state = null;
let connected = false;
const buttons = new Map();

async function press(name) {
  $("refused").hidden = true;
  let why = "";
  try {
    const res = await fetch("/do/" + name, { method: "POST" });
    if (!res.ok) why = (await res.json()).error;
  } catch {
    why = "No response: the demo has ended.";
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
  b.disabled = true; // until the state arrives
  b.addEventListener("click", () => press(action.name));
  buttons.set(action.name, { b, alone: action.alone });
}

function showButtons() {
  const busy = state ? state.busy : [];
  const disaster = [...buttons].some(([name, { alone }]) => alone && busy.includes(name));
  for (const [name, { b, alone }] of buttons) {
    const mine = busy.includes(name);
    b.disabled = !connected || !state || !state.ready || mine || (alone && disaster) || (name === "again" && !state.current);
    b.classList.toggle("busy", mine);
  }
}

// ---- the state ----------------------------------------------------------------------

// What a state is called on the page; the others are called what they are.
const stateTexts = { dead: "killed" };
const tones = { up: "good", dead: "bad", paused: "wait", starting: "wait", disconnected: "bad" };

function part(name, state, ...more) {
  return node("li", { "data-tone": tones[state], "data-state": state }, state === "up" ? name : name + ": " + (stateTexts[state] || state), ...more);
}

let partsShown = "";

function showParts() {
  const parts = JSON.stringify([state.processes, state.postgres]);
  if (parts === partsShown) return; // replacing a button while it is being pressed would lose the click
  partsShown = parts;
  const list = state.processes.map((p) => {
    if (p.state !== "dead") return part("API " + p.name, p.state);
    const start = node("button", { type: "button", id: "start" }, "start it now");
    start.addEventListener("click", () => press("start"));
    return part("API " + p.name, p.state, start);
  });
  document.querySelector(".parts").replaceChildren(...list, part("PostgreSQL", state.postgres), part("Stripe, simulated", "up"));
}

const toneOf = (charges) => (charges === 0 ? "none" : charges === 1 ? "good" : "bad");

function showNumber() {
  const p = state.current;
  if (!p) return;
  $("charges").textContent = p.charges;
  $("number").dataset.tone = toneOf(p.charges);
  $("number").dataset.order = p.order;
  $("verdict").textContent = p.charges === 0 ? "Not charged yet." : p.charges === 1 ? "Charged once." : "Charged " + p.charges + " times. This must never happen.";
  let facts = "12.50 USD, order …" + p.order.slice(-6) + ": " + p.requests + (p.requests === 1 ? " request" : " requests");
  if (p.suppressed > 0) facts += "; " + p.suppressed + (p.suppressed === 1 ? " duplicate" : " duplicates") + " changed nothing";
  $("facts").textContent = facts + ".";
}

function showTiles() {
  $("tiles-title").hidden = state.purchases.length === 0;
  $("tiles").replaceChildren(...state.purchases.map((p) =>
    node("li", { "data-tone": toneOf(p.charges), title: p.title + ", " + p.order + ": " + p.charges }, String(p.charges))));
}

function show(next) {
  if (state && state.run !== next.run) { // another demo at the same address
    location.reload();
    return;
  }
  state = next;
  $("banner").hidden = state.ready;
  $("banner").textContent = "The demo is playing scenes in the terminal" + (state.scene ? ". " + state.scene : "") + ". The buttons work when it has finished.";
  $("docs").href = state.docs;
  $("operator").href = state.operator;
  showParts();
  showButtons();
  showNumber();
  showTiles();
  showPlot();
}

// ---- the plot --------------------------------------------------------------------

let samples = [];

function addSample() {
  const now = { at: Date.now(), ...state.totals };
  const last = samples[samples.length - 1];
  if (!last || series.some(([name]) => last[name] !== now[name])) samples.push(now);
  if (samples.length > 480) samples = samples.filter((_, i) => i % 2 === 0);
}

function showPlot() {
  addSample();
  const nothing = state.totals.orders === 0;
  $("legend").hidden = nothing;
  $("plot").hidden = nothing;
  if (nothing) return;
  $("legend").replaceChildren(...series.map(([name, text]) =>
    node("li", { class: name }, text, node("b", { id: "total-" + name }, String(state.totals[name])))));
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

// nice rounds up to a number whose half is readable on the axis.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 3, 4, 6, 8, 10].map((m) => m * power).find((m) => m >= n);
}

const ago = (ms) => (ms < 120000 ? Math.round(ms / 1000) + " s ago" : ms < 7200000 ? Math.round(ms / 60000) + " min ago" : Math.round(ms / 3600000) + " h ago");

// ---- the timeline -------------------------------------------------------------------

const docsOfPayment = "tag/payments/POST/v1/payments";
const cards = new Map(); // by run: { card, list, began, keys }

// instant is in milliseconds with their fraction, which Date drops: a charge and a
// kill are often less than a millisecond apart.
function instant(at) {
  const digits = /\.\d{3}(\d+)/.exec(at);
  return Date.parse(at) + (digits ? Number("0." + digits[1]) : 0);
}

function addEntry(e) {
  e.time = instant(e.at);
  if (e.kind === "action") addCard(e);
  const story = cards.get(e.run);
  if (!story) return; // its card has been removed
  if (e.kind === "result") addResult(story, e);
  else if (e.kind !== "action") addRow(story, e);
}

function addCard(e) {
  if (cards.has(e.id)) return;
  document.querySelector(".empty")?.remove();
  const list = node("ol", { class: "rows" });
  const card = node("article", { class: "story open", "data-story": e.id }, node("div", { class: "why" }, node("h3", {}, e.text), node("p", {}, e.answer), node("p", { class: "links" }, ...code(e, "code of this button"))), list);
  $("timeline").prepend(card);
  cards.set(e.id, { card, list, began: e.time, keys: new Set() });
  if (cards.size > maxCards) {
    const [oldest, { card }] = cards.entries().next().value;
    card.remove();
    cards.delete(oldest);
  }
}

function addRow(story, e) {
  const what = node("div", { class: "what" });
  if (e.text) what.append(node("span", { class: "text" }, e.text));
  if (e.dots) what.append(...dots(e.dots));
  else if (e.answer) what.append(node("span", { class: "answer" }, e.answer));
  what.append(...code(e, "code"));
  if (e.key) addLinks(story, e.key);
  const row = node("li", { "data-kind": e.kind, "data-tone": e.tone, "data-id": e.id },
    node("time", { datetime: e.at }, "+" + (Math.max(0, e.time - story.began) / 1000).toFixed(2) + " s"),
    node("span", { class: "who" }, e.who || labels[e.kind]), what);
  row.time = e.time;
  if (story.list.querySelector(`[data-id="${e.id}"]`)) return; // sent again after a reconnect
  // Entries come from several sources and not in order: each is put at its time.
  const later = [...story.list.children].find((r) => r.time > e.time);
  story.list.insertBefore(row, later || null);
}

// addLinks adds what is one click away from a card: what the API knows about its keys,
// and the documentation of the request.
function addLinks(story, key) {
  if (story.keys.has(key)) return;
  const links = story.card.querySelector(".links");
  links.append(node("a", { href: "/keys/" + encodeURIComponent(key), target: "_blank", rel: "noopener" }, "history of key " + key));
  if (story.keys.size === 0) links.append(
    node("a", { href: state.docs + "#" + docsOfPayment, target: "_blank", rel: "noopener" }, "docs: POST /v1/payments"));
  story.keys.add(key);
}

// code is a link to the function behind a line, or its name where the demo runs
// without its source code.
function code(e, text) {
  if (!e.code) return [];
  const [file, name] = e.code.split("#");
  const title = file + ", func " + name;
  if (!state.source) return [node("span", { class: "code" }, title)];
  return [node("a", { class: "code", href: "/code/" + file + "?func=" + name + "#here", title, target: "_blank", rel: "noopener" }, text)];
}

function dots(letters) {
  const all = node("div", { class: "dots" });
  const key = node("div", { class: "key" });
  for (const letter of letters) all.append(node("i", { class: letter }));
  for (const [letter, text] of Object.entries(dotTexts)) {
    const n = letters.split(letter).length - 1;
    if (n > 0) key.append(node("span", {}, node("span", { class: "dots" }, node("i", { class: letter })), n + " " + text));
  }
  return [all, key];
}

function addResult(story, e) {
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
  on("state", show);
  events.onopen = () => {
    connected = true;
    document.body.classList.remove("lost");
    showButtons();
  };
  events.onerror = () => {
    connected = false;
    document.body.classList.add("lost");
    $("banner").textContent = "The demo does not respond. If it has ended, start it again: go run ./cmd/demo -serve";
    $("banner").hidden = false;
    showButtons();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

addEventListener("resize", () => { if (state) showPlot(); });
fetch("/actions").then((res) => res.json()).then((list) => {
  list.forEach(addButton);
  listen();
});
