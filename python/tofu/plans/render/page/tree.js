// The layers as a tree that unfolds: blocks, layers, operators and tensors.

/** Groups layers by what their names begin with; a block of one layer is that layer. */
function blocksOf(layers) {
  const root = { name: "", label: "", children: new Map(), layers: [], order: 0 };
  layers.forEach((layer, order) => {
    let block = root;
    // A module of PyTorch has a path with dots; Gluon joins names by underscores.
    const between = layer.name.includes(".") ? "." : "_";
    const split = layer.name.split(between).filter(Boolean);
    const words = layer.name.startsWith("(") || !split.length ? [layer.name] : split;
    words.forEach((word, depth) => {
      if (!block.children.has(word)) {
        const name = words.slice(0, depth + 1).join(between);
        block.children.set(word, { name, label: word, between, children: new Map(), layers: [], order });
      }
      block = block.children.get(word);
    });
    block.layers.push(layer);
  });
  return [...root.children.values()].map(merged);
}

function merged(block) {
  const children = [...block.children.values()].map(merged);
  if (children.length === 1 && block.layers.length === 0) {
    const [only] = children;
    return { ...only, label: `${block.label}${only.between}${only.label}` };
  }
  const all = [...block.layers, ...children.flatMap((child) => child.all)];
  const of = all[0].of.map((_, plan) => {
    const sums = noBytes();
    for (const layer of all) {
      for (const key of Object.keys(sums)) sums[key] += layer.of[plan][key];
    }
    return sums;
  });
  return { ...block, children, all, of };
}

class Tree {
  /** `page` has layers, metric(), fits(item), open(item), showGraph(), columns(of). */
  constructor(page) {
    this.page = page;
    this.blocks = blocksOf(page.layers);
    this.unfolded = new Set();
    this.body = byId("tree");
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    // One block holds most layers of most nets: show what is in it.
    let at = this.blocks;
    while (at) {
      const all = at.reduce((count, block) => count + block.all.length, 0);
      const main = at.find((block) => 2 * block.all.length >= all && block.children.length);
      if (main) this.unfolded.add(main.name);
      at = main ? main.children : null;
    }
  }

  /** Whether a block has anything that the search finds. */
  holds(block) {
    return block.all.some((layer) =>
      [...layer.operators, ...layer.tensors].some((item) => this.page.fits(item)));
  }

  show() {
    const rows = [];
    // Bars have one scale for all blocks; colours compare blocks that stand side by side.
    const largest = Math.max(1, ...this.blocks.map((block) => this.size(block)));
    document.querySelector(".scale").replaceChildren(make("span", {}, "0"), make("span", {}, formatBytes(largest)));
    const visit = (blocks, level) => {
      const most = Math.max(1, ...blocks.map((block) => this.size(block)));
      for (const block of this.sorted(blocks)) {
        if (!this.holds(block)) continue;
        rows.push(this.blockRow(block, level, this.size(block) / most, this.size(block) / largest));
        if (!this.isUnfolded(block)) continue;
        visit(block.children, level + 1);
        for (const layer of block.layers) rows.push(...this.itemRows(layer, level + 1));
      }
    };
    visit(this.blocks, 1);
    this.body.replaceChildren(...rows);
    const first = this.body.querySelector("[role=treeitem]");
    if (first) first.tabIndex = 0;
    byId("tree-none").hidden = rows.length > 0;
    this.page.showGraph();
  }

  /** What colours show: the bytes of the last plan, the new one of a comparison. */
  size(block) {
    return block.of[block.of.length - 1][this.page.metric()];
  }

  sorted(blocks) {
    const by = byId("tree-order").value;
    if (by === "graph") return blocks;
    const last = this.page.plans - 1;
    return blocks.slice().sort((a, b) => b.of[last][by] - a.of[last][by] || a.order - b.order);
  }

  /** The unfolded blocks that have blocks inside, from the outside. */
  opened() {
    const found = [];
    const visit = (block) => {
      if (!this.isUnfolded(block) || !block.children.length) return;
      found.push(block);
      block.children.forEach(visit);
    };
    this.blocks.forEach(visit);
    return found;
  }

  isUnfolded(block) {
    return this.unfolded.has(block.name);
  }

  /** The numbers of a row; small screens show their titles, too. */
  numbers(text) {
    return this.page.treeColumns.map((column) => {
      const found = text(column);
      return make("span", { class: found === "0 bytes" ? "number none" : "number",
        "data-title": column.title }, found);
    });
  }

  blockRow(block, level, heat, share) {
    const isOpen = this.isUnfolded(block);
    return make("div", { role: "treeitem", class: "row block", "aria-expanded": String(isOpen),
      "aria-level": level, tabindex: -1, "data-block": block.name,
      style: { "--level": level, "--heat": String(heat) },
      on: { click: () => this.toggle(block) } },
      make("span", { class: "name" }, block.label,
        block.all.length > 1 ? make("small", {}, ` ${block.all.length} layers`) : null),
      bar(share), this.numbers((column) => column.text(block)));
  }

  itemRows(layer, level) {
    return [...layer.operators, ...layer.tensors]
      .filter((item) => this.page.fits(item))
      .map((item) => make("div", { role: "treeitem", class: `row leaf ${item.what}`,
        "aria-level": level, tabindex: -1, style: { "--level": level },
        on: { click: () => this.page.open(item) } },
        make("span", { class: "name" }, item.label,
          make("small", {}, item.what === "operator"
            ? ` ${item.kind}, ${item.direction}`
            : ` ${shapeText((item.of[0] || item.of[1]).shape)}${item.isParameter ? ", parameter" : ""}`)),
        bar(0), this.numbers((column) => column.item(item))));
  }

  toggle(block) {
    if (!this.unfolded.delete(block.name)) this.unfolded.add(block.name);
    this.show();
    const rows = [...this.body.querySelectorAll("[data-block]")];
    this.focus(rows.find((row) => row.dataset.block === block.name));
  }

  unfoldAll(isOpen) {
    const visit = (block) => {
      if (isOpen && block.children.length) this.unfolded.add(block.name);
      block.children.forEach(visit);
    };
    this.unfolded.clear();
    this.blocks.forEach(visit);
    this.show();
  }

  focus(row) {
    if (!row) return;
    for (const other of this.body.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
    row.tabIndex = 0;
    row.focus();
  }

  /** The keys of a tree: up, down, left, right, home, end, enter and space. */
  onKey(event) {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    const rows = [...this.body.children];
    const at = rows.indexOf(row);
    const level = Number(row.getAttribute("aria-level"));
    const expanded = row.getAttribute("aria-expanded");
    const goTo = { ArrowDown: rows[at + 1], ArrowUp: rows[at - 1], Home: rows[0],
      End: rows[rows.length - 1] };
    if (event.key === "Enter" || event.key === " ") row.click();
    else if (event.key === "ArrowRight" && expanded === "false") row.click();
    else if (event.key === "ArrowRight") this.focus(rows[at + 1]);
    else if (event.key === "ArrowLeft" && expanded === "true") row.click();
    else if (event.key === "ArrowLeft") {
      this.focus(rows.slice(0, at).reverse()
        .find((other) => Number(other.getAttribute("aria-level")) < level));
    } else if (event.key in goTo) this.focus(goTo[event.key]);
    else return;
    event.preventDefault();
  }
}
