// The blocks as a graph that opens: what flows between them forward, with its bytes and cuts.

const NODE = { width: 240, across: 44, down: 74, letters: 33 };
// Lines past other ranks: how far apart, and from the nodes.
const LANE = { wide: 14, first: 10, apart: 5, most: 5 };
const MOST_NODES = 150;
const LINE = 16; // of text below a node's name
const MOST_LINES = 3; // of weights; more are counted
const LONGEST_REPEAT = 12; // nodes in a row that repeats
const FEWEST_FOLDED = 2; // nodes that a repeat must save

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

/** Operators that read no input and no weight, such as a mask: the same in every step, or random. */
function operatorsOfNothing(operators) {
  const found = new Set();
  for (const operator of operators) {
    const reads = operator.reads || [];
    if (operator.direction === "forward" && reads.every((each) => found.has(each.writer))) {
      found.add(operator);
    }
  }
  return found;
}

/**
 * Nodes with their weights and badges (what operatorsOfNothing make for them), and edges: what
 * they read of each other. `order`: the place of a node's first operator.
 */
function flowOf(page) {
  const nodes = shownBlocks(page.tree).map((shown) => ({ ...shown, order: Infinity, rank: 0,
    operators: [], weights: new Set(), badges: new Set(), repeat: null }));
  const home = new Map();
  for (const node of nodes) for (const layer of node.layers) home.set(layer.name, node);
  const names = page.data.layers;
  const ofNothing = operatorsOfNothing(page.operators);
  const reads = [];
  page.operators.forEach((operator, at) => {
    if (operator.direction !== "forward" || ofNothing.has(operator)) return;
    const to = home.get(names[operator.layer]);
    to.order = Math.min(to.order, at);
    to.operators.push(operator);
    for (const tensor of new Set(operator.reads || [])) {
      const from = home.get(names[(tensor.writer || tensor).layer]);
      if (!tensor.of[page.last]) continue;
      if (!tensor.writer && (tensor.isParameter || from === to)) to.weights.add(tensor);
      else if (ofNothing.has(tensor.writer)) to.badges.add(tensor);
      else if (from !== to) {
        if (!tensor.writer) from.order = Math.min(from.order, at - 0.5);
        reads.push({ from, to, tensor });
      }
    }
  });
  const linked = new Set(reads.flatMap(({ from, to }) => [from, to]));
  const shown = nodes.filter((node) => linked.has(node)).sort((a, b) => a.order - b.order);
  shown.forEach((node, at) => { node.order = at; });
  const stands = foldRepeats(shown, page);
  return { nodes: shown.filter((node) => stands.get(node).node === node), edges: edgesOf(reads, stands) };
}

/** What two nodes must have alike to be repeats: all but the numbers in their names. */
function signature(node, last) {
  const cut = (tensor) => [tensor.of[last].shape, tensor.of[last].cuts];
  return JSON.stringify([node.block.label.replace(/\d+/g, ""),
    node.operators.map((each) => [each.kind, each.of[last], each.writes.filter((tensor) => tensor.of[last]).map(cut)]),
    [...node.weights].map(cut)]);
}

/**
 * Finds rows of nodes that repeat one after another; the first row stands for all of them unless
 * page.openedRepeats has its name. Returns for each node which one stands for it, and its turn.
 */
function foldRepeats(nodes, page) {
  const alike = nodes.map((node) => signature(node, page.last));
  const isSame = (at, other, count) => other + count <= nodes.length &&
    alike.slice(at, at + count).every((each, i) => each === alike[other + i]);
  const stands = new Map(nodes.map((node) => [node, { node, turn: 0 }]));
  for (let at = 0; at < nodes.length;) {
    let best = { count: 1, times: 1 };
    for (let count = 1; count <= LONGEST_REPEAT; count += 1) {
      let times = 1;
      while (isSame(at, at + times * count, count)) times += 1;
      if ((times - 1) * count > (best.times - 1) * best.count) best = { count, times };
    }
    const { count, times } = best;
    if ((times - 1) * count >= FEWEST_FOLDED) {
      const repeat = { name: nodes[at].block.name, times };
      for (let i = 0; i < count * times; i += 1) {
        nodes[at + i].repeat = repeat;
        if (page.openedRepeats.has(repeat.name)) continue;
        stands.set(nodes[at + i], { node: nodes[at + (i % count)], turn: Math.floor(i / count) });
      }
    }
    at += count * times;
  }
  return stands;
}

/** Edges between the nodes that are drawn; `again`: to the next repeat. */
function edgesOf(reads, stands) {
  const edges = new Map();
  for (const { from, to, tensor } of reads) {
    const [start, end] = [stands.get(from), stands.get(to)];
    const isWithin = start.node.repeat !== null && start.node.repeat === end.node.repeat;
    if (isWithin && start.turn > 0) continue;
    const again = isWithin && end.turn > start.turn;
    const key = `${start.node.order} ${end.node.order} ${again}`;
    if (!edges.has(key)) edges.set(key, { from: start.node, to: end.node, again, tensors: new Set() });
    edges.get(key).tensors.add(tensor);
  }
  return [...edges.values()];
}

/** The lines of a node below its name: bytes, weights, and what is made for it from nothing. */
function linesOf(node, last) {
  const fetched = node.layers.reduce((sum, layer) => sum + layer.of[last].fetched, 0);
  const own = (tensor) => {
    const name = node.block.name;
    return tensor.label.startsWith(name) ? tensor.label.slice(name.length + 1) : tensor.label;
  };
  const line = (tensor, text) => {
    const [full, room] = [own(tensor), NODE.letters - text.length - 1];
    return `${full.length > room ? `…${full.slice(1 - room)}` : full} ${text}`;
  };
  const bytes = (tensors) => formatBytes(tensors.reduce((sum, each) => sum + each.of[last].bytes, 0));
  const shapeAndCut = ({ shape, cuts }) => `${shape.join("×")}, ${cutText(cuts)}`;
  const list = (tensors, kind, words, text) => (tensors.length > MOST_LINES
    ? [{ kind, text: `${tensors.length} ${words}, ${bytes(tensors)}`, title: tensors.map(own).join("\n") }]
    : tensors.map((each) => ({ kind, text: line(each, text(each)), title: each.label })));
  return [{ kind: "bytes", text: `fetches ${formatBytes(fetched)}`, title: "" },
    ...list([...node.weights], "weight", "weights", (each) => shapeAndCut(each.of[last])),
    ...list([...node.badges], "badge", "constants", (each) => bytes([each]))];
}

function cutText(cuts) {
  return cuts.every((cut) => cut === REPLICATED) ? "whole" : `cut ${cutsText(cuts)}`;
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Puts each node below those that it reads from, and centres each rank. */
function placeNodes({ nodes, edges }) {
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
  let y = 0;
  for (const rank of ranks) {
    rank.forEach((node, place) => {
      node.x = (place + (widest - rank.length) / 2) * step;
      node.y = y;
      // Curves and lanes begin below the tallest.
      node.bottom = y + Math.max(...rank.map((other) => other.height));
    });
    y = rank[0].bottom + NODE.down;
  }
  return { width: widest * step, height: y };
}

function edgeText(edge, last) {
  const tensors = [...edge.tensors].sort((a, b) => b.of[last].bytes - a.of[last].bytes);
  const bytes = tensors.reduce((sum, tensor) => sum + tensor.of[last].bytes, 0);
  const count = tensors.length > 1 ? `${tensors.length} tensors, ` : "";
  const text = `${count}${formatBytes(bytes)}, ${cutText(tensors[0].of[last].cuts)}`;
  return edge.again ? `to the next: ${text}` : text;
}

/** A curve from a node to one of the next rank, and the place of its text. */
function curveOf(edge) {
  const [x, y] = [edge.from.x + NODE.width / 2, edge.from.y + edge.from.height];
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
    const y = edge.from.bottom + LANE.first + LANE.apart * out;
    const toY = edge.to.y - LANE.first - LANE.apart * into;
    const side = right + LANE.wide * at;
    let height = (y + toY) / 2;
    while (heights.some((other) => Math.abs(other - height) < 15)) height += 15;
    heights.push(height);
    return { path: `M${x},${edge.from.y + edge.from.height} V${y} H${side} V${toY} H${toX} V${edge.to.y - 5}`,
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
  for (const node of nodes) {
    node.lines = linesOf(node, page.last);
    node.height = 30 + LINE * node.lines.length;
  }
  const { width, height } = placeNodes({ nodes, edges });
  const size = (node) => node.layers.reduce((sum, layer) => sum + layer.of[page.last][page.metric()], 0);
  const most = Math.max(1, ...nodes.map(size));
  const isNear = (edge) => !edge.again && edge.to.rank === edge.from.rank + 1;
  const far = edges.filter((edge) => !isNear(edge));
  const lanes = lanesOf(far, width);
  const drawn = edges.map((edge) => {
    const curve = isNear(edge) ? curveOf(edge) : lanes[far.indexOf(edge)];
    const text = edgeText(edge, page.last);
    return [draw("path", { d: curve.path, class: edge.again ? "flow again" : "flow" }),
      draw("path", { d: curve.head, class: "flow-head" }),
      draw("text", { x: curve.at[0], y: curve.at[1], class: "flow-text", "text-anchor": curve.anchor },
        draw("title", {}, [...edge.tensors].map((tensor) => tensor.label).join("\n")), text)];
  });
  const boxes = nodes.map((node) => graphNode(page, node, size(node) / most));
  const whole = width + (far.length ? LANE.wide * far.length + 170 : 10);
  return [make("p", { class: "note" },
    "What the blocks give each other in the forward pass: bytes of the whole tensors, and the dimension ",
    "that each step cuts (- where they stay whole). Boxes list their weights, and in frames what is made ",
    "from no input and no weight. × counts blocks in a row that are alike. A click opens a block."),
    make("p", { class: "controls" }, openedButtons(page)),
    make("div", { class: "wide" }, draw("svg", { class: "graph", width: whole, height,
      viewBox: `-2 -2 ${whole + 4} ${height}`, role: "group", "aria-label": "graph of the blocks" },
      drawn.map(([path, head]) => [path, head]), boxes, drawn.map(([, , text]) => text)))];
}

/** Buttons that close what a click opened. */
function openedButtons(page) {
  const opened = [...page.tree.opened()].map((block) =>
    [block.name, () => page.tree.toggle(block)]);
  const repeats = [...page.openedRepeats].map((name) => [`${name} × …`, () => toggleRepeat(page, name)]);
  return [...opened, ...repeats].map(([text, click]) =>
    make("button", { type: "button", title: "close", on: { click } }, `▾ ${text}`));
}

function toggleRepeat(page, name) {
  if (!page.openedRepeats.delete(name)) page.openedRepeats.add(name);
  page.showGraph();
}

/** Properties of a part of the drawing that works as a button. */
function clickable(action) {
  const run = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  return { tabindex: 0, role: "button", on: { click: run, keydown: run } };
}

function graphNode(page, node, share) {
  const { block } = node;
  const opens = block.children.length > 0 && !page.tree.isUnfolded(block);
  const item = [...node.operators, ...node.layers.flatMap((layer) => layer.tensors)][0];
  const full = /^\d+$/.test(block.label) ? block.name : block.label;
  const { repeat } = node;
  const isFolded = repeat !== null && !page.openedRepeats.has(repeat.name);
  const name = `${opens ? "▸ " : ""}${shortened(full, isFolded ? 24 : 30)}`;
  const lines = node.lines.map(({ kind, text, title }, i) => {
    const y = 36 + LINE * i;
    return [kind === "badge"
      ? draw("rect", { x: 7, y: y - 12, width: Math.min(NODE.width - 14, 12 + 6.3 * text.length), height: 15, rx: 7, class: "node-badge" })
      : null,
    draw("text", { x: 12, y, class: `node-${kind}` }, title ? draw("title", {}, title) : null, text)];
  });
  return draw("g", { class: `node${opens ? " opens" : ""}`,
    transform: `translate(${node.x},${node.y})`, style: { "--heat": String(share) },
    ...clickable(() => (opens ? page.tree.toggle(block) : page.open(item))) },
    draw("title", {}, block.name),
    draw("rect", { width: NODE.width, height: node.height, rx: 7 }),
    draw("text", { x: 12, y: 19, class: "node-name" }, name), lines,
    isFolded ? draw("text", { x: NODE.width - 12, y: 19, class: "node-times", "text-anchor": "end",
      ...clickable(() => toggleRepeat(page, repeat.name)) },
      draw("title", {}, "show all of them"), `× ${repeat.times}`) : null);
}
