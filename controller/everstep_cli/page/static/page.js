// Keeps a page as things are. Without it the page shows what was so when it was opened.
const REFRESH_MS = 5000;
const live = document.getElementById("live");
// Every part as the server has sent it: scripts have changed what is shown since.
const sent = new Map(parts(document).map((part) => [part.id, plain(part)]));
let asking = false;

export function say(state, words) {
  live.dataset.state = state;
  live.textContent = words;
}

function parts(of) {
  return [...of.querySelectorAll("[data-part]")];
}

// Patterns of pictures have other names each time.
function plain(part) {
  return part.outerHTML.replace(/(id="|url\(#)p\d+/g, "$1p");
}

// Puts what the server has now in the place of each part that is another one.
export async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(20000) });
    if (answer.status === 401) {
      say("away", "this session is over: open the address that 'everstep page' prints");
      return;
    }
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) {
      say("away", found.querySelector(".lead")?.textContent ?? "the controller does not answer");
      return;
    }
    parts(found).forEach(put);
    const now = found.getElementById("live");
    say("live", now.textContent);
    // An incident that is over, or a job that has ended, does not change any more.
    if (now.dataset.refresh === undefined) delete live.dataset.refresh;
  } catch {
    say("away", "this page does not hear from its server; it tries again");
  } finally {
    asking = false;
  }
}

function put(part) {
  const shown = document.getElementById(part.id);
  const text = plain(part);
  if (shown === null || sent.get(part.id) === text) return;
  sent.set(part.id, text);
  const focused = shown.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const open = [...shown.querySelectorAll("details")].map((one) => one.open);
  const across = [...shown.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  shown.replaceWith(part);
  part.querySelectorAll("details").forEach((one, place) => { one.open = open[place] ?? one.open; });
  part.querySelectorAll(".scroll").forEach((one, place) => { one.scrollLeft = across[place] ?? 0; });
  if (focused !== null) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  part.dispatchEvent(new CustomEvent("put", { bubbles: true }));
}

if (live.dataset.refresh !== undefined) {
  setInterval(() => { if (live.dataset.refresh !== undefined) refresh(); }, REFRESH_MS);
  document.addEventListener("visibilitychange", () => { if (live.dataset.refresh !== undefined) refresh(); });
}

// What is folded away on a screen is on paper.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
