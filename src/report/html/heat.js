
// Time as a heat map: a column is a second or some, its cells go up from its beginning, and the colour is how many samples are in
// a cell. Dragging, two clicks, or two times Enter select the cells in between.

const HEAT = {
  light: ["#f9c46b", "#f59a3c", "#e0651f", "#b8321a", "#6d0a1a"],
  dark: ["#8f4f1c", "#b56a1e", "#db8a2c", "#f5b251", "#fff0c4"],
};
/** The widest a column is drawn. */
const WIDEST = 40;
/** Pixels of a heat map of few columns, where there is room. */
const NARROWEST = 480;

function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Colours of the heat map for parts from 0 to 1, 256 of them. */
function heatColors() {
  const stops = (isDark() ? HEAT.dark : HEAT.light).map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mix = stops[low].map((from, c) => Math.round(from + (stops[low + 1][c] - from) * (place - low)));
    return `rgb(${mix.join(",")})`;
  });
}

class HeatMap {
  /** Calls `onSelect(from, to)` with cells, or with nothing for all of them. */
  constructor(model, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    this.canvas = document.getElementById("heat-canvas");
    this.rows = model.head.rows;
    this.columns = Math.ceil(model.head.cells / this.rows);
    this.most = model.cells.reduce((most, weight) => Math.max(most, weight), 0);
    this.selection = null;
    /** The cell at which a selection was begun, and the one under the pointer or the keys. */
    this.anchor = null;
    this.cursor = null;
    this.listen();
    this.resize();
  }

  /** Seconds from the first sample to the beginning of a cell. */
  time(cell) {
    return (cell * this.model.head.cellNanoseconds) / 1e9;
  }

  cell(seconds) {
    return (seconds * 1e9) / this.model.head.cellNanoseconds;
  }

  resize() {
    const room = this.canvas.parentElement.clientWidth - this.canvas.offsetLeft + this.canvas.parentElement.offsetLeft;
    const scale = devicePixelRatio || 1;
    this.width = Math.max(40, Math.min(room, Math.max(this.columns * WIDEST, NARROWEST)));
    this.height = Math.max(100, this.rows * 3);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.scales();
    this.draw();
  }

  scales() {
    const span = this.model.head.columnSeconds;
    const y = document.getElementById("heat-scale-y");
    y.replaceChildren();
    for (const part of [0, 0.5, 1]) {
      const label = document.createElement("span");
      const value = span * part;
      label.textContent = value < 1 && value > 0 ? `${value * 1000} ms` : `${seconds(value)} s`;
      label.style.top = `${Math.min(Math.max(this.height * (1 - part), 7), this.height - 7)}px`;
      y.append(label);
    }
    const x = document.getElementById("heat-scale-x");
    x.replaceChildren();
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    const wanted = this.columns / Math.max(1, this.width / 70);
    const step = steps.find((step) => step >= wanted) ?? Math.ceil(wanted);
    // The end has a label too, which those before it leave room for.
    const pixels = (columns) => (columns / this.columns) * this.width;
    for (let column = 0; column < this.columns; column += step) {
      if (column > 0 && pixels(this.columns - column) < 90) continue;
      const label = document.createElement("span");
      label.textContent = `${seconds(column * span)} s`;
      label.style.left = `${pixels(column)}px`;
      x.append(label);
    }
    const end = document.createElement("span");
    end.textContent = `${seconds(this.columns * span)} s`;
    end.style.left = `${this.width}px`;
    end.style.transform = "translateX(-100%)";
    if (this.width >= 90) x.append(end);
    const legend = document.getElementById("heat-legend");
    const bar = document.createElement("canvas");
    [bar.width, bar.height] = [256, 1];
    const context = bar.getContext("2d");
    heatColors().forEach((color, i) => {
      context.fillStyle = color;
      context.fillRect(i, 0, 1, 1);
    });
    if (this.most > 1) legend.replaceChildren("1", bar, `${shown(this.most)} samples in a cell`);
    else legend.replaceChildren("1 sample in a cell");
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const { rows, columns, model } = this;
    const [width, height] = [this.canvas.width / columns, this.canvas.height / rows];
    const colors = heatColors();
    context.fillStyle = cssVariable("--empty");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const gap = width >= 6 ? 1 : 0;
    for (let cell = 0; cell < model.head.cells; cell++) {
      const weight = model.cells[cell];
      if (weight === 0) continue;
      const inside = !this.selection || (cell >= this.selection.from && cell < this.selection.to);
      context.globalAlpha = inside ? 1 : 0.22;
      context.fillStyle = colors[this.most > 1 ? Math.round((255 * (weight - 1)) / (this.most - 1)) : 255] ?? colors[255];
      const [left, top] = this.place(cell);
      // To whole pixels, so that no lines are left between.
      const [x, y] = [Math.floor(left * width), Math.floor(top * height)];
      context.fillRect(x, y, Math.ceil((left + 1) * width) - x - gap, Math.ceil((top + 1) * height) - y);
    }
    context.globalAlpha = 1;
    if (this.cursor !== null) {
      const [left, top] = this.place(this.cursor);
      context.strokeStyle = cssVariable("--mark");
      context.lineWidth = Math.max(1, devicePixelRatio || 1);
      context.strokeRect(left * width, top * height, width, Math.max(height, 3));
    }
  }

  /** Column, and row from the top, of a cell. */
  place(cell) {
    return [Math.floor(cell / this.rows), this.rows - 1 - (cell % this.rows)];
  }

  cellAt(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const part = (value, most) => Math.min(Math.max(Math.floor(value), 0), most - 1);
    const column = part(((event.clientX - bounds.left) / bounds.width) * this.columns, this.columns);
    const row = part((1 - (event.clientY - bounds.top) / bounds.height) * this.rows, this.rows);
    return Math.min(column * this.rows + row, this.model.head.cells - 1);
  }

  listen() {
    const { canvas } = this;
    let pressed = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      pressed = this.cellAt(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event);
      this.tell(cell, event);
      const start = pressed ?? this.anchor;
      if (start !== null && cell !== start) this.show(start, cell);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (pressed === null) return;
      const cell = this.cellAt(event);
      const start = pressed;
      pressed = null;
      if (cell !== start) this.finish(start, cell);
      else this.mark(cell);
    });
    canvas.addEventListener("pointercancel", () => {
      pressed = null;
      this.draw();
    });
    canvas.addEventListener("pointerleave", () => hideTip());
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -this.rows, ArrowRight: this.rows, ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (step) {
        event.preventDefault();
        const to = (this.cursor ?? (step > 0 ? -step : step)) + step;
        this.cursor = Math.min(Math.max(to, 0), this.model.head.cells - 1);
        if (this.anchor !== null) this.show(this.anchor, this.cursor);
        else this.draw();
        this.tell(this.cursor, null);
      } else if ((event.key === "Enter" || event.key === " ") && this.cursor !== null) {
        event.preventDefault();
        this.mark(this.cursor);
      }
    });
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.draw();
    });
    for (const id of ["range-from", "range-to"]) {
      document.getElementById(id).addEventListener("change", () => this.typed());
    }
    document.getElementById("range-all").addEventListener("click", () => this.all());
  }

  /** Begins a selection, or ends the one that was begun. */
  mark(cell) {
    if (this.anchor === null) {
      this.anchor = cell;
      this.show(cell, cell);
      document.getElementById("range").textContent = `from ${seconds(this.time(cell))} s to …: choose the end, or press Escape`;
    } else {
      this.finish(this.anchor, cell);
    }
  }

  show(a, b) {
    this.selection = { from: Math.min(a, b), to: Math.max(a, b) + 1 };
    this.draw();
  }

  finish(a, b) {
    this.anchor = null;
    this.show(a, b);
    this.report();
  }

  typed() {
    const value = (id, otherwise) => {
      const text = document.getElementById(id).value;
      return text === "" || !Number.isFinite(Number(text)) ? otherwise : this.cell(Number(text));
    };
    const { cells } = this.model.head;
    // To the nearest cell: what is shown of times has three digits.
    const from = Math.min(Math.max(Math.round(value("range-from", 0)), 0), cells - 1);
    const to = Math.min(Math.max(Math.round(value("range-to", cells)), from + 1), cells);
    this.finish(from, to - 1);
  }

  all() {
    this.anchor = null;
    this.selection = null;
    this.draw();
    this.report();
  }

  /** Whether there is a selection, or one that was begun. */
  isUsed() {
    return this.selection !== null || this.anchor !== null;
  }

  report() {
    const { selection } = this;
    document.getElementById("range-from").value = selection ? seconds(this.time(selection.from)) : "";
    document.getElementById("range-to").value = selection ? seconds(this.time(selection.to)) : "";
    document.getElementById("range-all").disabled = !selection;
    this.onSelect(selection?.from ?? 0, selection?.to ?? this.model.head.cells);
  }

  tell(cell, event) {
    const time = `${seconds(this.time(cell))} s to ${seconds(this.time(cell + 1))} s`;
    const text = counted(this.model.cells[cell], "sample");
    if (event?.pointerType === "mouse") showTip(event, text, time);
    else if (!event) document.getElementById("range").textContent = `${time}: ${text}`;
  }
}
