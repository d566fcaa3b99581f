// Draws the curves of a table: one picture for each group of columns, over the time in the first.
const COLOURS = ["--curve1", "--curve2"];
const HEIGHT = 190;
const DASHES = [[], [6, 4]];
const dark = matchMedia("(prefers-color-scheme: dark)");
let drawn = [];
let printing = false;

function colour(name) {
  if (printing && name === "--ink") return "#000";
  if (printing && name === "--rule") return "#999";
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function read(table) {
  const heads = [...table.tHead.rows[0].cells].slice(1);
  const rows = [...table.tBodies[0].rows].reverse();
  const at = rows.map((row) => Number(row.cells[0].dataset.at));
  const groups = new Map();
  heads.forEach((head, place) => {
    const { group, unit } = head.dataset;
    if (!group) return;
    const values = rows.map((row) => {
      const text = row.cells[place + 1].textContent;
      return text === "" ? null : Number(text);
    });
    const found = groups.get(group) ?? { unit, names: [], values: [] };
    found.names.push(head.textContent.replace(/, [^,]*$/, ""));
    found.values.push(values);
    groups.set(group, found);
  });
  return { at, groups };
}

// Times of day, in UTC; with the date where that changes.
function clock(_, ticks) {
  let day = "";
  return ticks.map((at) => {
    const text = new Date(at * 1000).toISOString();
    const same = text.slice(0, 10) === day || day === "" && ticks.length && ticks[ticks.length - 1] - ticks[0] < 86400;
    day = text.slice(0, 10);
    return same ? text.slice(11, 19) : text.slice(5, 16).replace("T", " ");
  });
}

function options(of, width, sync) {
  const axis = { stroke: () => colour("--ink"), grid: { stroke: () => colour("--rule"), width: 1 }, ticks: { stroke: () => colour("--rule"), width: 1 }, font: "12px system-ui, sans-serif" };
  const series = of.names.map((label, place) => ({
    label,
    stroke: () => colour(COLOURS[place % COLOURS.length]),
    width: 2,
    dash: DASHES[place % DASHES.length],
    points: { show: of.values[place].length < 8 },
    value: (_, value) => (value === null || value === undefined ? "–" : `${value} ${of.unit}`),
  }));
  const range = of.unit === "%" ? [0, 100] : (_, low, high) => [0, high > 0 ? high * 1.08 : 1];
  return {
    width,
    height: HEIGHT,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    cursor: { sync: { key: sync }, drag: { x: false, y: false } },
    scales: { y: { range } },
    axes: [{ ...axis, values: clock, space: 84 }, { ...axis, size: 76, values: (_, ticks) => ticks.map((one) => `${one} ${of.unit}`) }],
    series: [{ value: (_, at) => (at === null || at === undefined ? "–" : `${new Date(at * 1000).toISOString().slice(11, 19)} UTC`) }, ...series],
  };
}

function draw(section) {
  const table = section.querySelector("#curves");
  const plots = section.querySelector("[data-plots]");
  const { at, groups } = read(table);
  const key = [...groups].map(([group, of]) => [group, ...of.names]).join();
  if (plots.dataset.key === key) {
    [...groups.values()].forEach((of, place) => drawn[place].setData([at, ...of.values]));
    return;
  }
  plots.dataset.key = key;
  for (const plot of drawn) plot.destroy();
  plots.replaceChildren();
  drawn = [...groups].map(([group, of]) => {
    const box = plots.appendChild(document.createElement("figure"));
    box.appendChild(document.createElement("h3")).textContent = group;
    const place = box.appendChild(document.createElement("div"));
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `curve of ${group} (${of.names.join(", ")}); the table has its values`);
    const plot = new uPlot(options(of, place.clientWidth || 400, key), [at, ...of.values], place);
    new ResizeObserver(() => {
      const width = place.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }).observe(place);
    return plot;
  });
}

function again() {
  for (const plot of drawn) plot.redraw(false, true);
}

for (const section of document.querySelectorAll("[data-curves]")) {
  draw(section);
  // The curves say it, and the table is there for whoever wants numbers.
  section.querySelector("details").open = false;
  section.addEventListener("put", () => draw(section));
}
// Legends have the colours that they were made with.
dark.addEventListener("change", () => {
  for (const section of document.querySelectorAll("[data-curves]")) {
    section.querySelector("[data-plots]").dataset.key = "";
    draw(section);
  }
});
addEventListener("beforeprint", () => { printing = true; again(); });
addEventListener("afterprint", () => { printing = false; again(); });
