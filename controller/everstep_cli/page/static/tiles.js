// The fleet as it is now: one stream of events says which nodes are not well, and how jobs fare.
import { refresh, say } from "./page.js";

let tiles = new Map();
let jobs = new Map();
let marked = [];

function read() {
  const links = [...document.querySelectorAll("a.tile")];
  tiles = new Map(links.map((tile) => [decodeURIComponent(tile.getAttribute("href").slice("/node/".length)), tile]));
  jobs = new Map([...document.querySelectorAll("tr[data-job]")].map((row) => [row.dataset.job, row]));
  marked = [...tiles].filter(([, tile]) => tile.classList.length > 1).map(([node]) => node);
  rove(links);
}

function draw(node, tile, [, state, letter, shape, told]) {
  const looks = `tile ${state} ${shape}`;
  const title = `${state}: ${told}`;
  if (tile.className === looks && tile.title === title) return;
  tile.className = looks;
  tile.textContent = letter;
  tile.title = title;
  tile.setAttribute("aria-label", `${node}: ${state}`);
}

function drawWell(node, tile) {
  tile.className = "tile";
  tile.textContent = "";
  tile.title = `${node}: healthy`;
  tile.removeAttribute("aria-label");
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function cell(text, href) {
  const made = document.createElement("td");
  const inner = href === undefined ? made : made.appendChild(document.createElement("a"));
  if (href !== undefined) inner.href = href;
  inner.textContent = text;
  return made;
}

// The nodes that are not well, the worst first, in words.
function name(troubled) {
  const section = document.getElementById("named");
  const body = section.querySelector("tbody");
  const shown = troubled.slice(0, Number(body.dataset.max));
  section.hidden = shown.length === 0;
  section.querySelector("[data-more]").hidden = troubled.length <= shown.length;
  const told = JSON.stringify(shown);
  if (body.dataset.told === told || body.contains(document.activeElement)) return;
  body.dataset.told = told;
  body.replaceChildren(...shown.map(([node, state, , , why]) => {
    const row = document.createElement("tr");
    const words = cell(why);
    words.className = "said";
    row.append(cell(node, `/node/${node.split("/").map(encodeURIComponent).join("/")}`), cell(state), words);
    return row;
  }));
}

function count(counts) {
  for (const shown of document.querySelectorAll("[data-count]")) {
    const nodes = counts[shown.dataset.count] ?? 0;
    setText(shown, String(nodes));
    shown.parentElement.hidden = nodes === 0;
  }
}

function show(change) {
  if (change.away !== undefined) {
    say("away", change.away);
    return;
  }
  say("live", `as of ${new Date().toISOString().slice(0, 19).replace("T", " ")} UTC`);
  const now = new Map(change.tiles.map((one) => [one[0], one]));
  for (const node of marked) {
    if (!now.has(node) && tiles.has(node)) drawWell(node, tiles.get(node));
  }
  for (const [node, one] of now) {
    if (tiles.has(node)) draw(node, tiles.get(node), one);
  }
  marked = [...now.keys()];
  count(change.counts);
  name(change.tiles);
  for (const [job, state, step] of change.jobs) {
    const row = jobs.get(job);
    if (row === undefined) continue;
    setText(row.querySelector("[data-field=state]"), state);
    setText(row.querySelector("[data-field=step]"), String(step ?? ""));
  }
  // Other nodes or jobs than were there when the page was made.
  const others = document.getElementById("fleet").dataset.roster !== change.roster;
  if (others || change.jobs.length !== jobs.size || change.jobs.some(([job]) => !jobs.has(job))) refresh();
}

// One stop of the tab key for all nodes: arrow keys go from one to the next.
let stop = null;

function rove(links) {
  for (const link of links) link.tabIndex = -1;
  stop = links[0] ?? null;
  if (stop !== null) stop.tabIndex = 0;
  for (const told of document.querySelectorAll("[data-keys]")) told.hidden = false;
}

function beside(tile, key) {
  const all = [...tiles.values()];
  const place = all.indexOf(tile);
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  if (key === "ArrowRight") return all[place + 1];
  if (key === "ArrowLeft") return all[place - 1];
  const here = tile.getBoundingClientRect();
  const down = key === "ArrowDown";
  const lines = (down ? all.slice(place + 1) : all.slice(0, place).reverse()).slice(0, 400);
  return lines.find((one) => {
    const there = one.getBoundingClientRect();
    return (down ? there.top > here.top + 4 : there.top < here.top - 4) && Math.abs(there.left - here.left) < 12;
  });
}

document.addEventListener("keydown", (event) => {
  const tile = event.target;
  if (!tile.classList?.contains("tile") || event.ctrlKey || event.altKey || event.metaKey) return;
  if (!["Home", "End", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  const next = beside(tile, event.key);
  if (next === undefined) return;
  stop.tabIndex = -1;
  stop = next;
  stop.tabIndex = 0;
  stop.focus();
});
document.addEventListener("put", (event) => { if (event.target.id === "fleet") read(); });
read();
const source = new EventSource("/live");
source.onmessage = (event) => show(JSON.parse(event.data));
source.onerror = () => say("away", source.readyState === EventSource.CLOSED
  ? "as many browsers as may follow the fleet already, or this session is over: reload to try again"
  : "this page does not hear from its server; it tries again");
// A browser that goes back finds the page as it was, and follows anew.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
