
// The flame graph: a box for every stack, as wide as its samples, callees hanging below their callers.

const ROW = 18;
/** Callers of what is zoomed to that are still shown. */
const CALLERS = 12;
/** The narrowest box that is drawn, in pixels. */
const NARROW = 0.5;
/** Rows at most: browsers draw no canvas of any height. */
const ROWS = 400;
/** Pixels at most, for the same reason: on phones as many. */
const PIXELS = 16e6;
const FOUND = "#e600e6";

class FlameGraph {
  /** Calls `onChange()` when what is shown is another part. */
  constructor(model, onChange) {
    this.model = model;
    this.onChange = onChange;
    this.canvas = document.getElementById("flame");
    this.zoomed = 0;
    this.before = [];
    this.weights = null;
    /** Of every frame, whether it is searched for; `null` without a search. */
    this.found = null;
    this.cursor = null;
    this.boxes = [];
    this.listen();
  }

  setWeights(weights) {
    this.weights = weights;
    if (weights.total[this.zoomed] === 0) this.reset();
    this.update();
  }

  setFound(found) {
    this.found = found;
    this.draw();
  }

  /** The whole that shares are of. */
  whole() {
    return this.weights.total[0];
  }

  /** Places everything anew: after a zoom, for another width or other weights. */
  update() {
    const { model, zoomed } = this;
    const { total } = this.weights;
    this.width = this.canvas.parentElement.clientWidth;
    this.boxes = [];
    const above = model.depth[zoomed];
    const hidden = Math.max(0, above - CALLERS);
    const place = (node, left, width) => {
      const row = model.depth[node] - hidden;
      if (row >= ROWS) return false;
      (this.boxes[row] ??= []).push({ node, left, width });
      return true;
    };
    const callers = [];
    for (let node = zoomed; node !== 0; node = model.parent[node]) callers.push(model.parent[node]);
    for (const node of callers.reverse()) {
      if (model.depth[node] >= hidden) place(node, 0, this.width);
    }
    let narrow = 0;
    let deep = 0;
    if (total[zoomed] > 0) {
      const scale = this.width / total[zoomed];
      place(zoomed, 0, this.width);
      // Where the next callee of each node begins.
      const next = new Map([[zoomed, 0]]);
      for (let node = zoomed + 1; node < model.end[zoomed]; ) {
        const parent = model.parent[node];
        const left = next.get(parent);
        const width = total[node] * scale;
        next.set(parent, left + width);
        let inside = width >= NARROW;
        if (!inside && width > 0) narrow++;
        if (inside && !place(node, left, width)) {
          inside = false;
          deep++;
        }
        if (inside) next.set(node, left);
        node = inside ? node + 1 : model.end[node];
      }
    }
    const notes = [];
    if (hidden > 0) notes.push(`${hidden} callers further up are not shown.`);
    if (narrow > 0) notes.push(`${shown(narrow)} boxes are too narrow to be drawn: zoom in to see them.`);
    if (deep > 0) notes.push("Stacks go on below: zoom in to see them.");
    if (total[zoomed] === 0) notes.push("No samples here.");
    document.getElementById("flame-note").textContent = notes.join(" ");
    document.getElementById("zoom-back").disabled = this.before.length === 0;
    document.getElementById("zoom-reset").disabled = zoomed === 0;
    this.draw();
    this.onChange();
  }

  draw() {
    const { canvas, model } = this;
    const height = Math.max(1, this.boxes.length) * ROW;
    const scale = Math.min(devicePixelRatio || 1, Math.sqrt(PIXELS / (this.width * height)));
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
    context.textBaseline = "middle";
    const letter = context.measureText("M").width;
    this.boxes.forEach((row, y) => {
      for (const { node, left, width } of row) {
        const found = this.found && node !== 0 && this.found[model.frame[node]];
        context.globalAlpha = model.depth[node] < model.depth[this.zoomed] ? 0.55 : 1;
        context.fillStyle = found ? FOUND : model.color(node);
        context.fillRect(left, y * ROW, Math.max(width - (width > 2 ? 0.6 : 0), NARROW), ROW - 1);
        const letters = Math.floor((width - 6) / letter);
        if (letters < 3) continue;
        context.fillStyle = found ? "#ffffff" : "#111111";
        const name = model.name(node);
        const text = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
        context.fillText(text, left + 3, y * ROW + ROW / 2, width - 6);
      }
    });
    context.globalAlpha = 1;
    const marked = this.boxOf(this.cursor);
    if (marked) {
      context.strokeStyle = cssVariable("--mark");
      context.lineWidth = 2;
      context.strokeRect(marked.box.left + 1, marked.row * ROW + 1, Math.max(marked.box.width - 2, 1), ROW - 3);
    }
  }

  boxOf(node) {
    for (let row = 0; node !== null && row < this.boxes.length; row++) {
      const box = this.boxes[row]?.find((box) => box.node === node);
      if (box) return { row, box };
    }
    return null;
  }

  nodeAt(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - bounds.left) / bounds.width) * this.width;
    const row = this.boxes[Math.floor((event.clientY - bounds.top) / ROW)] ?? [];
    const box = row.find((box) => x >= box.left && x < box.left + Math.max(box.width, NARROW));
    return box ? box.node : null;
  }

  zoom(node) {
    if (node === this.zoomed) return;
    this.before.push(this.zoomed);
    this.zoomed = node;
    if (this.cursor !== null) this.cursor = node;
    this.update();
  }

  back() {
    this.zoomed = this.before.pop() ?? 0;
    if (this.weights.total[this.zoomed] === 0) this.zoomed = 0;
    this.update();
  }

  reset() {
    this.zoomed = 0;
    this.before = [];
  }

  /** What is said of a box. */
  describe(node) {
    const { model } = this;
    const { own, total } = this.weights;
    const kind = model.kind(node);
    const parts = [`${counted(total[node], "sample")}, ${percent(total[node], this.whole())}`];
    if (this.zoomed !== 0) parts.push(`${percent(total[node], total[this.zoomed])} of what is shown`);
    if (own[node] > 0) parts.push(`${shown(own[node])} in it itself`);
    if (kind !== MARK) parts.push([model.head.kinds[kind].label, model.module(node)].filter(Boolean).join(", "));
    return parts.join("; ");
  }

  /** Share of what is shown that has a frame that is searched for. */
  foundShare() {
    const { model, zoomed, found } = this;
    const { total } = this.weights;
    let sum = 0;
    for (let node = Math.max(zoomed, 1); node < model.end[zoomed]; ) {
      if (found[model.frame[node]]) {
        sum += total[node];
        node = model.end[node];
      } else {
        node++;
      }
    }
    return { sum, whole: total[zoomed] };
  }

  listen() {
    const { canvas } = this;
    const tell = (node) => {
      const text = node === null ? "" : `${short(this.model.name(node), 600)} (${this.describe(node)})`;
      document.getElementById("details").textContent = text;
    };
    canvas.addEventListener("pointermove", (event) => {
      const node = this.nodeAt(event);
      tell(node);
      if (node === null || event.pointerType !== "mouse") hideTip();
      else showTip(event, short(this.model.name(node), 600), this.describe(node));
    });
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      tell(null);
    });
    canvas.addEventListener("click", (event) => {
      const node = this.nodeAt(event);
      if (node === null) return;
      this.zoom(node);
      tell(node);
    });
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.cursor !== null) this.zoom(this.cursor);
      else if (event.key.startsWith("Arrow")) this.move(event.key);
      else return;
      event.preventDefault();
      tell(this.cursor);
    });
    document.getElementById("zoom-back").addEventListener("click", () => this.back());
    document.getElementById("zoom-reset").addEventListener("click", () => {
      this.reset();
      this.update();
    });
  }

  /** Moves the mark to a neighbour. */
  move(key) {
    const at = this.boxOf(this.cursor);
    if (!at) {
      this.cursor = this.zoomed;
      return this.draw();
    }
    const { row, box } = at;
    const nearest = (boxes) => boxes?.find((other) => other.left + other.width > box.left + 1e-6);
    const index = this.boxes[row].indexOf(box);
    const to = {
      ArrowUp: () => nearest(this.boxes[row - 1]),
      ArrowDown: () => this.boxes[row + 1]?.find((other) => this.model.parent[other.node] === box.node),
      ArrowLeft: () => this.boxes[row][index - 1],
      ArrowRight: () => this.boxes[row][index + 1],
    }[key]();
    if (to) this.cursor = to.node;
    this.draw();
  }
}
