// Elements of the page. Names from a model only ever become text, never markup.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function bars(counts, title) {
  const svg = document.createElementNS(SVG, "svg"), most = Math.max(...counts, 1);
  svg.setAttribute("viewBox", `0 0 ${counts.length * 10} 46`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  counts.forEach((count, i) => {
    const bar = document.createElementNS(SVG, "rect"), height = count ? Math.max(1, (46 * count) / most) : 0;
    const place = { x: i * 10 + 0.5, y: 46 - height, width: 9, height };
    for (const [name, value] of Object.entries(place)) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return svg;
}
