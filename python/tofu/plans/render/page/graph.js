// The blocks as a graph that opens: what flows between them forward, with its bytes and cuts.

const NODE = { width: 200, height: 46, across: 44, down: 74 };
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

/** A curve from one node to another, and the place of its text. */
function curveOf(edge, lanes) {
  const [x, y] = [edge.from.x + NODE.width / 2, edge.from.y + NODE.height];
  const [toX, toY] = [edge.to.x + NODE.width / 2, edge.to.y];
  if (edge.to.rank === edge.from.rank + 1) {
    const middle = (y + toY) / 2;
    return { path: `M${x},${y} C${x},${middle} ${toX},${middle} ${toX},${toY - 5}`,
      head: `M${toX - 5},${toY - 9} L${toX},${toY} L${toX + 5},${toY - 9} z`, at: [(x + toX) / 2, middle + 4], anchor: "middle" };
  }
  // Past other ranks, in a lane of its own to the right of the nodes.
  const side = lanes.right + 14 * lanes.used;
  lanes.used += 1;
  const [right, end] = [edge.from.x + NODE.width, edge.to.x + NODE.width];
  const [start, stop] = [edge.from.y + NODE.height / 2, edge.to.y + NODE.height / 2];
  return { path: `M${right},${start} L${side - 8},${start} Q${side},${start} ${side},` +
    `${start + 8 * Math.sign(stop - start)} L${side},${stop - 8 * Math.sign(stop - start)} ` +
    `Q${side},${stop} ${side - 8},${stop} L${end + 5},${stop}`,
    head: `M${end + 9},${stop - 5} L${end},${stop} L${end + 9},${stop + 5} z`, at: [right + 6, start - 5], anchor: "start" };
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
  const lanes = { right: width, used: 0 };
  const most = Math.max(1, ...nodes.map((node) => page.tree.size(node.block)));
  const drawn = edges.map((edge) => {
    const curve = curveOf(edge, lanes);
    const text = edgeText(edge, page.last);
    return [draw("path", { d: curve.path, class: "flow" }),
      draw("path", { d: curve.head, class: "flow-head" }),
      draw("text", { x: curve.at[0], y: curve.at[1], class: "flow-text", "text-anchor": curve.anchor },
        draw("title", {}, [...edge.tensors].map((tensor) => tensor.label).join("\n")), text)];
  });
  const boxes = nodes.map((node) => graphNode(page, node, most));
  const whole = lanes.right + (lanes.used ? 14 * lanes.used + 110 : 10);
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
  const name = block.label.length > 26 ? `${block.label.slice(0, 25)}…` : block.label;
  return draw("g", { class: `node${block.children.length ? " opens" : ""}`, tabindex: 0, role: "button",
    transform: `translate(${node.x},${node.y})`, style: { "--heat": String(share) },
    on: { click, keydown: onKey } },
    draw("title", {}, block.name),
    draw("rect", { width: NODE.width, height: NODE.height, rx: 7 }),
    draw("text", { x: 12, y: 19, class: "node-name" }, mark + name),
    draw("text", { x: 12, y: 36, class: "node-bytes" }, `fetches ${formatBytes(own.fetched)}`));
}
