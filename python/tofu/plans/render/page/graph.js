// The blocks as a graph that opens: what flows between them forward, with its bytes and cuts.

const NODE = { width: 200, height: 46, across: 44, down: 74 };
// Lines past other ranks: how far apart, and from the nodes.
const LANE = { wide: 14, first: 10, apart: 5, most: 5 };
const MOST_NODES = 150;

/** The blocks that are shown: the folded ones, and the layers of unfolded ones. */
function shownBlocks(tree) {
  const found = [];
  const visit = (block) => {
    if (!tree.isUnfolded(block) || !block.children.length) {
      found.push({ block, layers: block.all });
      return;
    }
    if (block.layers.length) found.push({ block, layers: block.layers });
    block.children.forEach(visit);
  };
  tree.blocks.forEach(visit);
  return found;
}

/** Nodes with what they read of each other; `order`: their first operator's place. */
function flowOf(page) {
  const nodes = shownBlocks(page.tree).map((shown) => ({ ...shown, order: Infinity, rank: 0 }));
  const home = new Map();
  for (const node of nodes) for (const layer of node.layers) home.set(layer.name, node);
  const names = page.data.layers;
  const edges = new Map();
  page.operators.forEach((operator, at) => {
    if (operator.direction !== "forward") return;
    const to = home.get(names[operator.layer]);
    to.order = Math.min(to.order, at);
    for (const tensor of new Set(operator.reads || [])) {
      const from = home.get(names[(tensor.writer || tensor).layer]);
      if (tensor.isParameter || from === to || !tensor.of[page.last]) continue;
      if (!tensor.writer) from.order = Math.min(from.order, at - 0.5);
      const key = `${nodes.indexOf(from)} ${nodes.indexOf(to)}`;
      if (!edges.has(key)) edges.set(key, { from, to, tensors: new Set() });
      edges.get(key).tensors.add(tensor);
    }
  });
  const linked = new Set([...edges.values()].flatMap((edge) => [edge.from, edge.to]));
  return { nodes: nodes.filter((node) => linked.has(node)), edges: [...edges.values()] };
}

/** Puts each node below those that it reads from, and centres each rank. */
function placeNodes({ nodes, edges }) {
  nodes.sort((a, b) => a.order - b.order);
  nodes.forEach((node, at) => { node.order = at; });
  for (const node of nodes) {
    for (const edge of edges) {
      if (edge.to === node && edge.from.order < node.order) {
        node.rank = Math.max(node.rank, edge.from.rank + 1);
      }
    }
  }
  const ranks = [];
  for (const node of nodes) (ranks[node.rank] = ranks[node.rank] || []).push(node);
  const step = NODE.width + NODE.across;
  const widest = Math.max(...ranks.map((rank) => rank.length));
  ranks.forEach((rank, at) => rank.forEach((node, place) => {
    node.x = (place + (widest - rank.length) / 2) * step;
    node.y = at * (NODE.height + NODE.down);
  }));
  return { width: widest * step, height: ranks.length * (NODE.height + NODE.down) };
}

function edgeText(edge, last) {
  const tensors = [...edge.tensors].sort((a, b) => b.of[last].bytes - a.of[last].bytes);
  const bytes = tensors.reduce((sum, tensor) => sum + tensor.of[last].bytes, 0);
  const count = tensors.length > 1 ? `${tensors.length} tensors, ` : "";
  return `${count}${formatBytes(bytes)}, cut ${cutsText(tensors[0].of[last].cuts)}`;
}

/** A curve from a node to one of the next rank, and the place of its text. */
function curveOf(edge) {
  const [x, y] = [edge.from.x + NODE.width / 2, edge.from.y + NODE.height];
  const [toX, toY] = [edge.to.x + NODE.width / 2, edge.to.y];
  const middle = (y + toY) / 2;
  return { path: `M${x},${y} C${x},${middle} ${toX},${middle} ${toX},${toY - 5}`,
    head: headOf(toX, toY), at: [(x + toX) / 2, middle + 4], anchor: "middle" };
}

function headOf(x, y) {
  return `M${x - 5},${y - 9} L${x},${y} L${x + 5},${y - 9} z`;
}

/**
 * Lines past other ranks, each in a lane of its own to the right of the nodes: down from a node,
 * between two ranks to the lane, along it, and between two ranks to the other node.
 */
function lanesOf(edges, right) {
  const [leaving, coming, heights] = [new Map(), new Map(), []];
  const next = (counts, node) => {
    counts.set(node.rank, (counts.get(node.rank) || 0) + 1);
    return (counts.get(node.rank) - 1) % LANE.most;
  };
  return edges.map((edge, at) => {
    const [out, into] = [next(leaving, edge.from), next(coming, edge.to)];
    const [x, toX] = [edge.from.x + NODE.width - 24 - 8 * out, edge.to.x + NODE.width - 24 - 8 * into];
    const y = edge.from.y + NODE.height + LANE.first + LANE.apart * out;
    const toY = edge.to.y - LANE.first - LANE.apart * into;
    const side = right + LANE.wide * at;
    let height = (y + toY) / 2;
    while (heights.some((other) => Math.abs(other - height) < 15)) height += 15;
    heights.push(height);
    return { path: `M${x},${edge.from.y + NODE.height} V${y} H${side} V${toY} H${toX} V${edge.to.y - 5}`,
      head: headOf(toX, edge.to.y), at: [side + 5, height + 4], anchor: "start" };
  });
}

function graphView(page) {
  const { nodes, edges } = flowOf(page);
  if (!page.operators.some((operator) => operator.reads)) {
    return [make("p", { class: "note" },
      "The file of a plan has no graph; the page of tofu plan --format html has.")];
  }
  if (!nodes.length || nodes.length > MOST_NODES) {
    return [make("p", { class: "note" }, nodes.length
      ? `${nodes.length} blocks are too many to see: fold some.` : "Nothing flows between blocks.")];
  }
  const { width, height } = placeNodes({ nodes, edges });
  const most = Math.max(1, ...nodes.map((node) => page.tree.size(node.block)));
  const isNear = (edge) => edge.to.rank === edge.from.rank + 1;
  const far = edges.filter((edge) => !isNear(edge));
  const lanes = lanesOf(far, width);
  const drawn = edges.map((edge) => {
    const curve = isNear(edge) ? curveOf(edge) : lanes[far.indexOf(edge)];
    const text = edgeText(edge, page.last);
    return [draw("path", { d: curve.path, class: "flow" }),
      draw("path", { d: curve.head, class: "flow-head" }),
      draw("text", { x: curve.at[0], y: curve.at[1], class: "flow-text", "text-anchor": curve.anchor },
        draw("title", {}, [...edge.tensors].map((tensor) => tensor.label).join("\n")), text)];
  });
  const boxes = nodes.map((node) => graphNode(page, node, most));
  const whole = width + (far.length ? LANE.wide * far.length + 170 : 10);
  return [make("p", { class: "note" },
    "What the blocks give each other in the forward pass: bytes of the whole tensors, and the dimension ",
    "that each step cuts (- where they stay whole). A click opens a block, or closes it."),
    make("div", { class: "wide" }, draw("svg", { class: "graph", width: whole, height,
      viewBox: `-2 -2 ${whole + 4} ${height}`, role: "group", "aria-label": "graph of the blocks" },
      drawn.map(([path, head]) => [path, head]), boxes, drawn.map(([, , text]) => text)))];
}

function graphNode(page, node, most) {
  const { block } = node;
  const own = block.of[page.last];
  const share = page.tree.size(block) / most;
  const click = () => {
    if (block.children.length) page.tree.toggle(block);
    else page.open((block.layers[0].operators[0] || block.layers[0].tensors[0]));
  };
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    click();
  };
  const mark = block.children.length ? `${page.tree.isUnfolded(block) ? "▾" : "▸"} ` : "";
  const full = /^\d+$/.test(block.label) ? block.name : block.label;
  const name = full.length > 26 ? `${full.slice(0, 25)}…` : full;
  return draw("g", { class: `node${block.children.length ? " opens" : ""}`, tabindex: 0, role: "button",
    transform: `translate(${node.x},${node.y})`, style: { "--heat": String(share) },
    on: { click, keydown: onKey } },
    draw("title", {}, block.name),
    draw("rect", { width: NODE.width, height: NODE.height, rx: 7 }),
    draw("text", { x: 12, y: 19, class: "node-name" }, mark + name),
    draw("text", { x: 12, y: 36, class: "node-bytes" }, `fetches ${formatBytes(own.fetched)}`));
}
