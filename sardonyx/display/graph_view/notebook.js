// Runs in the notebook, not in the page: tells the frames of graph views whether the text around
// them is light or dark. A sandboxed frame cannot see that, and prefers-color-scheme tells it the
// system's theme, which need not be the notebook's.
(() => {
  if (window.sardonyxFrames) return;
  const frames = (window.sardonyxFrames = new Set());
  const LATER = 400; // Milliseconds: a notebook loads the style of a new theme after naming it.

  function tell(asker) {
    const found = [...document.querySelectorAll("iframe.sx-graph")].find((f) => f.contentWindow === asker);
    if (!found) return frames.delete(asker);
    const [red, green, blue] = getComputedStyle(found.parentElement).color.match(/[\d.]+/g).map(Number);
    const isLightText = 0.299 * red + 0.587 * green + 0.114 * blue > 127;
    asker.postMessage({ sardonyxTheme: isLightText ? "dark" : "light" }, "*");
  }

  addEventListener("message", ({ source, data }) => {
    if (data !== "sardonyx: light or dark?") return;
    frames.add(source);
    tell(source);
  });
  const watcher = new MutationObserver(() => [0, LATER].forEach((wait) => setTimeout(() => frames.forEach(tell), wait)));
  for (const root of [document.documentElement, document.body]) watcher.observe(root, { attributes: true });
})();
