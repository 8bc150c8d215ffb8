// What is on the sheet: the nested layouts as flat lists, in the order in which they are painted.
import { isGroup } from "./graph.js";
import { layOut } from "./layout.js";

export function buildScene(graph, levels) {
  const root = graph.items[graph.root];
  const scene = { boxes: [], frames: [], edges: [], stubs: [], place: new Map() };
  const layout = layOut(graph, levels, root);
  scene.width = layout.width;
  scene.height = layout.height;
  place(graph, scene, root, 0, 0, 0);
  return scene;
}

function place(graph, scene, group, left, top, depth) {
  const { children, edges, stubs } = group.layout;
  for (const child of children) {
    const item = graph.items[child.id];
    const isFrame = isGroup(item) && item.open;
    const box = {
      item, depth, isFrame, x: left + child.x, y: top + child.y, width: child.width, height: child.height,
    };
    scene.place.set(item.id, box);
    (isFrame ? scene.frames : scene.boxes).push(box);
    if (isFrame) place(graph, scene, item, box.x, box.y, depth + 1);
  }
  for (const { edge, points } of edges) {
    scene.edges.push(curve(edge, points.map(({ x, y }) => ({ x: x + left, y: y + top }))));
  }
  for (const { edge, child } of stubs) {
    scene.stubs.push({ edge, x: left + child.x + Math.min(14, child.width / 4), y: top + child.y });
  }
}

// A curve that leaves and arrives vertically, and keeps to the bends between members.
function curve(edge, points) {
  const path = new Path2D();
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  path.moveTo(xs[0], ys[0]);
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    const half = (b.y - a.y) / 2;
    path.bezierCurveTo(a.x, a.y + half, b.x, b.y - half, b.x, b.y);
  }
  return {
    edge, points, path,
    left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys),
  };
}
