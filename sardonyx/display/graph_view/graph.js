// The graph as the page uses it. An item is a node or a group: nodes have the numbers from 0,
// groups those after the nodes. A node with subgraphs is the item of its group.

export function readGraph(data) {
  const nodes = data.nodes, groups = data.groups, values = data.values;
  const count = nodes.length;
  const graph = { ...data, nodes, groups, values, root: count, size: count + groups.length };
  graph.items = [
    ...nodes.map((node, id) => ({ id, node, parent: count + node.group })),
    ...groups.map((group, i) => ({
      id: count + i, group, members: [], total: 0, open: i === 0,
      parent: group.parent < 0 ? -1 : count + group.parent,
      node: group.node === undefined ? null : nodes[group.node],
    })),
  ];
  graph.itemOf = nodes.map((_, id) => id);
  groups.forEach((group, i) => {
    if (group.node !== undefined) graph.itemOf[group.node] = count + i;
  });
  fillMembers(graph);
  findReaders(graph);
  return graph;
}

export const isGroup = (item) => item.group !== undefined;

function fillMembers(graph) {
  const first = new Map();
  for (const item of graph.items) {
    if (isGroup(item) || graph.itemOf[item.id] !== item.id) continue;
    for (let at = item; at.parent >= 0; at = graph.items[at.parent]) {
      const outer = graph.items[at.parent];
      if (!first.has(at.id)) {
        first.set(at.id, item.id);
        outer.members.push(at.id);
      }
      if (item.node.role === undefined || item.node.role === "node") outer.total += 1;
    }
  }
  graph.items.filter(isGroup).forEach((item) => item.members.sort((a, b) => first.get(a) - first.get(b)));
}

// Who computes and who reads each value, as items.
function findReaders(graph) {
  graph.producer = new Map();
  graph.readers = new Map();
  graph.nodes.forEach((node, id) => {
    const item = graph.itemOf[id];
    for (const [, value] of node.outputs ?? []) if (value !== null) graph.producer.set(value, item);
  });
  graph.nodes.forEach((node, id) => {
    for (const [, value] of node.inputs ?? []) {
      if (value === null) continue;
      if (!graph.readers.has(value)) graph.readers.set(value, []);
      const readers = graph.readers.get(value);
      if (!readers.includes(graph.itemOf[id])) readers.push(graph.itemOf[id]);
    }
  });
}

export function ancestors(graph, id) {
  const found = [];
  for (let at = graph.items[id].parent; at >= 0; at = graph.items[at].parent) found.push(at);
  return found;
}

// All groups, each after those inside it.
export function groupsInsideOut(graph) {
  const found = [graph.items[graph.root]];
  for (let i = 0; i < found.length; i++) found.push(...found[i].members.map((id) => graph.items[id]).filter(isGroup));
  return found.reverse();
}

export function titleOf(item) {
  if (isGroup(item)) return item.group.name || "graph";
  return item.node.role === "input" || item.node.role === "output" ? item.node.name : item.node.operator;
}

const shortest = (name) => name.split("/").pop().replace(/^node_/, "");

// What the second line of a box says: the shapes of weights, else the name.
export function subtitleOf(graph, item) {
  if (isGroup(item)) return `${item.total.toLocaleString("en")} node${item.total === 1 ? "" : "s"}`;
  const node = item.node;
  if (node.role === "input") return graph.values[node.outputs[0][1]].type ?? "input";
  if (node.role === "output") return "output";
  const weights = (node.inputs ?? []).map(([, value]) => graph.values[value]).filter((v) => v?.weight);
  const shapes = weights.map((v) => v.type.match(/\[(.+)\]/)?.[1].replaceAll(", ", "×")).filter(Boolean);
  if (shapes.length) return shapes.slice(0, 2).join("  ") + (shapes.length > 2 ? " …" : "");
  const name = shortest(node.name ?? "");
  return name === node.operator ? "" : name;
}
