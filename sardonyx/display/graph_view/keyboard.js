// Mouse, touch and keys.
import { isGroup } from "./graph.js";
import { HEADER } from "./layout.js";

export const KEYS = [
  ["drag, wheel", "move, zoom"], ["click", "show what is known of a node"], ["double click, Enter", "fold or unfold"],
  ["↑ ↓", "go to what a node reads, or to what reads it"], ["← →", "go to the neighbour"], ["/", "search"],
  ["+ − 0", "zoom, show everything"], ["e, c", "unfold all, fold all"], ["Esc", "close"],
];

export function listen(view) {
  listenToPointers(view);
  view.canvas.addEventListener("keydown", (event) => onKey(view, event));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.matches("input, select")) {
      document.getElementById("search").focus();
      event.preventDefault();
    }
  });
}

function hit(view, event) {
  const { left, top } = view.canvas.getBoundingClientRect();
  const at = view.camera.toSheet(event.clientX - left, event.clientY - top);
  const holds = (b) => at.x >= b.x && at.x <= b.x + b.width && at.y >= b.y && at.y <= b.y + b.height;
  const box = view.scene.boxes.find(holds) ?? view.scene.frames.findLast(holds);
  if (!box) return null;
  const isHead = box.isFrame ? at.y < box.y + HEADER : true;
  return { id: box.item.id, isHead, isMarker: isGroup(box.item) && isHead && at.x < box.x + 28 && at.y < box.y + HEADER };
}

function listenToPointers(view) {
  const { canvas, camera } = view, pointers = new Map();
  let moved = 0, spread = 0;
  const distance = () => { const [a, b] = [...pointers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    [moved, spread] = [0, pointers.size === 2 ? distance() : 0];
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) {
      canvas.classList.toggle("over", hit(view, event)?.isHead ?? false);
      return;
    }
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved += Math.abs(dx) + Math.abs(dy);
    if (pointers.size === 2) {
      camera.zoom(distance() / spread, event.offsetX, event.offsetY);
      spread = distance();
    } else if (moved > 4) camera.pan(dx, dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (pointers.delete(event.pointerId) && moved <= 4) onClick(view, hit(view, event));
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("dblclick", (event) => {
    const target = hit(view, event);
    if (target && !target.isMarker && isGroup(view.graph.items[target.id])) view.toggle(target.id);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 20 : 1);
    camera.zoom(Math.exp(-Math.max(-150, Math.min(150, pixels)) * 0.0022), event.offsetX, event.offsetY);
  }, { passive: false });
}

function onClick(view, target) {
  view.canvas.focus({ preventScroll: true });
  if (target?.isMarker) view.toggle(target.id);
  else view.select(target?.isHead ? target.id : null);
}

function onKey(view, event) {
  const { camera, selected, graph } = view;
  const actions = {
    "+": () => camera.zoom(1.25), "=": () => camera.zoom(1.25), "-": () => camera.zoom(0.8),
    0: () => camera.fit(view.scene), e: () => view.openAll(true), c: () => view.openAll(false),
    "?": () => view.help(), Escape: () => view.escape(),
    Enter: () => selected !== null && isGroup(graph.items[selected]) && view.toggle(selected),
    " ": () => selected !== null && isGroup(graph.items[selected]) && view.toggle(selected),
    ArrowUp: () => walk(view, "from", "to"), ArrowDown: () => walk(view, "to", "from"),
    ArrowLeft: () => sideways(view, -1), ArrowRight: () => sideways(view, 1),
  };
  const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
  if (!action) return;
  action();
  event.preventDefault();
}

function first(view) {
  const [box] = [...view.scene.boxes].sort((a, b) => a.y - b.y || a.x - b.x);
  if (box) view.reveal(box.item.id);
}

// Along an edge; where it crosses a border, to the group.
function walk(view, towards, own) {
  if (view.selected === null) return first(view);
  const edges = view.scene.edges.filter(({ edge }) => edge[own].item === view.selected);
  const next = edges.map(({ edge }) => edge[towards].item ?? edge.owner).find((id) => id !== view.graph.root && view.scene.place.has(id));
  if (next !== undefined) view.reveal(next);
}

function sideways(view, step) {
  if (view.selected === null) return first(view);
  const siblings = view.graph.items[view.graph.items[view.selected].parent]?.members ?? [];
  const sorted = siblings.map((id) => view.scene.place.get(id)).filter(Boolean).sort((a, b) => a.y - b.y || a.x - b.x);
  const next = sorted[sorted.findIndex((box) => box.item.id === view.selected) + step];
  if (next) view.reveal(next.item.id);
}
