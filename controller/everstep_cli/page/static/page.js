// Keeps the page as the fleet is. Without it the page shows what was so when it was opened.
"use strict";
(() => {
  const live = document.getElementById("live");
  const tiles = new Map([...document.querySelectorAll("a.tile")].map((tile) => [tile.dataset.node, tile]));
  const jobs = new Map([...document.querySelectorAll("tr[data-job]")].map((row) => [row.dataset.job, row]));
  let marked = [];

  function say(state, words) {
    live.dataset.state = state;
    live.textContent = words;
  }

  function draw(tile, state, letter, shape, told) {
    tile.className = `tile ${state} ${shape}`;
    tile.textContent = letter;
    tile.title = told;
    tile.setAttribute("aria-label", `${tile.dataset.node}: ${told}`);
  }

  function show(change) {
    if (change.away !== undefined) {
      say("away", change.away);
      return;
    }
    say("live", `as of ${new Date().toISOString().slice(11, 19)} UTC`);
    const now = new Map(change.troubled.map((one) => [one[0], one]));
    for (const node of marked) {
      if (!now.has(node) && tiles.has(node)) draw(tiles.get(node), "healthy", "", "square", "healthy");
    }
    for (const [node, state, letter, shape, told] of change.troubled) {
      if (tiles.has(node)) draw(tiles.get(node), state, letter, shape, told);
    }
    marked = [...now.keys()];
    for (const count of document.querySelectorAll("[data-count]")) {
      count.textContent = change.states[count.dataset.count] ?? 0;
    }
    for (const [name, state, step] of change.jobs) {
      const row = jobs.get(name);
      if (row === undefined) continue;
      row.querySelector("[data-field=state]").textContent = state;
      row.querySelector("[data-field=step]").textContent = step ?? "";
    }
  }

  marked = [...tiles].filter(([, tile]) => !tile.classList.contains("healthy")).map(([node]) => node);
  if (live.dataset.follow === undefined) return;
  const source = new EventSource("/live");
  source.onmessage = (event) => show(JSON.parse(event.data));
  source.onerror = () => say("away", "this page does not hear from its server; it tries again");
})();
