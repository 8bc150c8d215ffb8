// Light or dark: what the reader chose, or else the notebook around the frame, or else the system.
const QUESTION = "sardonyx: light or dark?";

export class Theme {
  // Calls `changed` whenever the answer may have changed.
  constructor(changed) {
    this.chosen = this.around = null;
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", changed);
    if (parent === window) return;
    addEventListener("message", ({ source, data }) => {
      if (source !== parent || !["light", "dark"].includes(data?.sardonyxTheme)) return;
      this.around = data.sardonyxTheme;
      changed();
    });
    parent.postMessage(QUESTION, "*");
  }

  get name() {
    return this.chosen ?? this.around ?? (this.system.matches ? "dark" : "light");
  }

  toggle() {
    this.chosen = this.name === "dark" ? "light" : "dark";
  }
}
