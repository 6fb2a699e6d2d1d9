
"use strict";

// What the page knows: a tree of stacks, and how often each was seen in each cell of time.
//
// The data is gzip in base64: the length of a JSON text, that text, then numbers of 7 bits a byte, lowest first, of which all but
// the last byte have the eighth bit set. src/report/html/pack.rs writes it.

/** Reads numbers one after the other. */
class Numbers {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }

  next() {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("the data ends too early: is the file whole?");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  }
}

/** The bytes that were packed as base64 of gzip. */
async function unpack(base64) {
  const packed = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(base64)
    : Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Frames of this kind are no functions: processes, and marks for what is missing. */
const MARK = 3;

/**
 * The tree and its samples. Node 0 is everything; others are in the order in which they are drawn, each before its callees, so that
 * the callees of `node` and theirs are those up to `end[node]`.
 */
class Model {
  constructor(bytes) {
    const numbers = new Numbers(bytes, 0);
    const length = numbers.next();
    const text = new TextDecoder().decode(bytes.subarray(numbers.at, numbers.at + length));
    numbers.at += length;
    // What is in the JSON text: see `Head` in pack.rs.
    this.head = JSON.parse(text);
    this.readTree(numbers);
    this.readCells(numbers);
    this.findFunctions();
  }

  readTree(numbers) {
    const count = this.head.nodes + 1;
    this.count = count;
    this.parent = new Int32Array(count);
    this.frame = new Int32Array(count);
    this.depth = new Int32Array(count);
    this.end = new Int32Array(count);
    this.frame[0] = -1;
    for (let node = 1; node < count; node++) {
      // How many levels the tree falls before this node stands on what is left.
      let on = node - 1;
      for (let up = numbers.next(); up > 0; up--) on = this.parent[on];
      this.parent[node] = on;
      this.depth[node] = this.depth[on] + 1;
      this.frame[node] = numbers.next();
    }
    for (let node = count - 1; node >= 0; node--) {
      if (this.end[node] === 0) this.end[node] = node + 1;
      const parent = this.parent[node];
      if (node > 0 && this.end[parent] < this.end[node]) this.end[parent] = this.end[node];
    }
  }

  readCells(numbers) {
    const { cells, entries } = this.head;
    this.firstOf = new Int32Array(cells + 1);
    for (let cell = 0; cell < cells; cell++) this.firstOf[cell + 1] = this.firstOf[cell] + numbers.next();
    this.nodeOf = new Int32Array(entries);
    for (let cell = 0; cell < cells; cell++) {
      let node = 0;
      for (let i = this.firstOf[cell]; i < this.firstOf[cell + 1]; i++) this.nodeOf[i] = node += numbers.next();
    }
    this.weightOf = new Float64Array(entries);
    for (let i = 0; i < entries; i++) this.weightOf[i] = numbers.next();
    this.cells = new Float64Array(cells);
    for (let cell = 0; cell < cells; cell++) {
      for (let i = this.firstOf[cell]; i < this.firstOf[cell + 1]; i++) this.cells[cell] += this.weightOf[i];
    }
  }

  /** For the table: in which function a stack ends, and where a function is met first on the way up, so that recursion counts once. */
  findFunctions() {
    const { frameFunction } = this.head;
    this.leaf = new Int32Array(this.count).fill(-1);
    this.first = new Uint8Array(this.count);
    const path = [];
    const onPath = new Uint8Array(this.head.functionName.length);
    for (let node = 1; node < this.count; node++) {
      while (path.length >= this.depth[node]) {
        const last = path.pop();
        if (this.first[last]) onPath[frameFunction[this.frame[last]]] = 0;
      }
      path.push(node);
      const of = frameFunction[this.frame[node]];
      // A stack that ends in a mark ends in no function that is known.
      this.leaf[node] = of >= 0 ? of : -1;
      if (of >= 0 && !onPath[of]) {
        onPath[of] = 1;
        this.first[node] = 1;
      }
    }
  }

  /** Weight of every node with its callees, in the cells from `from` up to `to`. */
  weights(from, to) {
    const own = new Float64Array(this.count);
    for (let i = this.firstOf[from]; i < this.firstOf[to]; i++) own[this.nodeOf[i]] += this.weightOf[i];
    const total = own.slice();
    for (let node = this.count - 1; node > 0; node--) total[this.parent[node]] += total[node];
    return { own, total };
  }

  /** Of every function, the weight of samples in it and of those with it in their stack. */
  functions({ own, total }) {
    const count = this.head.functionName.length;
    const table = { self: new Float64Array(count), total: new Float64Array(count) };
    const { frameFunction } = this.head;
    for (let node = 1; node < this.count; node++) {
      if (own[node] > 0 && this.leaf[node] >= 0) table.self[this.leaf[node]] += own[node];
      if (this.first[node]) table.total[frameFunction[this.frame[node]]] += total[node];
    }
    return table;
  }

  name(node) {
    if (node === 0) return "all";
    return this.head.functionName[this.frameText(node)] ?? this.head.markName[-1 - this.frameText(node)];
  }

  /** Number of a function, or below 0, -1 less that of a mark. */
  frameText(node) {
    return this.head.frameFunction[this.frame[node]];
  }

  module(node) {
    return this.head.moduleName[this.head.functionModule[this.frameText(node)]] ?? "";
  }

  kind(node) {
    return node === 0 ? MARK : this.head.frameKind[this.frame[node]];
  }

  color(node) {
    return node === 0 ? this.head.kinds[MARK].color : this.head.frameColor[this.frame[node]];
  }
}

/** A count for people. */
function shown(count) {
  return count.toLocaleString("en-US");
}

/** A count with what it is of. */
function counted(count, one) {
  return `${shown(count)} ${one}${count === 1 ? "" : "s"}`;
}

function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(2)} %` : "0 %";
}

/** `text` without what nobody reads to the end. */
function short(text, most) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** Seconds, as exact as the cells are. */
function seconds(value) {
  return String(Number(value.toFixed(3)));
}
