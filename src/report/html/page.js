
// The table of functions, and what ties the parts together.

const ROWS_AT_FIRST = 50;
const ROWS_MORE = 200;

class Table {
  /** Calls `onChoose(function)` when a name is clicked. */
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;
    this.body = document.querySelector("#top tbody");
    this.sort = "self";
    this.rows = ROWS_AT_FIRST;
    this.found = null;
    for (const button of document.querySelectorAll("#top th button")) {
      button.addEventListener("click", () => {
        this.sort = button.dataset.sort;
        this.update();
      });
    }
    document.getElementById("top-more").addEventListener("click", () => {
      this.rows += ROWS_MORE;
      this.update();
    });
  }

  setWeights(weights) {
    this.whole = weights.total[0];
    this.counts = this.model.functions(weights);
    this.update();
  }

  /** Marks functions: of every function, whether it is searched for. */
  setFound(found) {
    this.found = found;
    for (const row of this.body.rows) row.classList.toggle("found", Boolean(found?.[row.dataset.function]));
  }

  update() {
    const { self, total } = this.counts;
    const { functionName, functionModule, moduleName } = this.model.head;
    const order = [];
    for (let i = 0; i < total.length; i++) if (total[i] > 0) order.push(i);
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const byName = (a, b) =>
      compare(functionName[a], functionName[b]) || compare(moduleName[functionModule[a]], moduleName[functionModule[b]]);
    const orders = {
      self: (a, b) => self[b] - self[a] || total[b] - total[a] || byName(a, b),
      total: (a, b) => total[b] - total[a] || self[b] - self[a] || byName(a, b),
      name: byName,
    };
    order.sort(orders[this.sort]);
    for (const head of document.querySelectorAll("#top th")) {
      const sorted = head.firstElementChild.dataset.sort === this.sort;
      if (sorted) head.setAttribute("aria-sort", this.sort === "name" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    this.body.replaceChildren(
      ...order.slice(0, this.rows).map((of) => {
        const row = document.createElement("tr");
        row.dataset.function = of;
        for (const count of [self[of], total[of]]) {
          row.insertCell().textContent = shown(count);
          row.lastElementChild.className = "count";
          row.insertCell().textContent = percent(count, this.whole);
        }
        const cell = row.insertCell();
        cell.className = "name";
        const name = document.createElement("button");
        name.type = "button";
        name.append(isolated(short(functionName[of], 400)));
        name.addEventListener("click", () => this.onChoose(of));
        const module = document.createElement("small");
        module.append(isolated(short(moduleName[functionModule[of]], 200)));
        cell.append(name, module);
        return row;
      }),
    );
    this.setFound(this.found);
    const more = document.getElementById("top-more");
    more.hidden = order.length <= this.rows;
    more.textContent = `${shown(Math.min(ROWS_MORE, order.length - this.rows))} more of ${shown(order.length)}`;
    const showing = Math.min(this.rows, order.length);
    document.getElementById("top-note").textContent =
      `${shown(showing)} of ${counted(order.length, "function")}; shares are of ${counted(this.whole, "sample")}. ` +
      "Self: samples in the function; total: those of its callees too. A click on a name finds it in the graph.";
  }
}

/** Text that may be written from right to left, and turns nothing around it. */
function isolated(text) {
  const element = document.createElement("bdi");
  element.textContent = text;
  return element;
}

function showTip(event, title, text) {
  const tip = document.getElementById("tip");
  const bold = document.createElement("b");
  bold.textContent = title;
  tip.replaceChildren(bold, text);
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? event.clientY + 18 : Math.max(0, event.clientY - tip.offsetHeight - 10)}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

/** What a search is for: text wherever it is in a name, in any case, or a regular expression between slashes. */
function searched(query) {
  const expression = query.match(/^\/(.+)\/(i?)$/s);
  if (expression) {
    const pattern = new RegExp(expression[1], expression[2]);
    return (name) => pattern.test(name);
  }
  const text = query.toLowerCase();
  return (name) => name.toLowerCase().includes(text);
}

class Page {
  constructor(model) {
    this.model = model;
    this.graph = new FlameGraph(model, () => this.tellFound());
    this.table = new Table(model, (of) => this.find(model.head.functionName[of], (i) => i === of));
    this.heat = model.head.cells > 0 ? new HeatMap(model, (from, to) => this.select(from, to)) : null;
    this.legend();
    this.describe();
    this.listen();
    this.select(0, model.head.cells);
  }

  select(from, to) {
    const weights = this.model.weights(from, to);
    this.graph.setWeights(weights);
    this.table.setWeights(weights);
    const { cells, cellNanoseconds } = this.model.head;
    const time = (cell) => seconds((cell * cellNanoseconds) / 1e9);
    const part = from === 0 && to === cells ? "All of it" : `${time(from)} s to ${time(to)} s`;
    document.getElementById("range").textContent = `${part}: ${counted(weights.total[0], "sample")}`;
  }

  legend() {
    const items = this.model.head.kinds.map(({ label, color }) => {
      const item = document.createElement("li");
      const square = document.createElement("i");
      square.style.background = color;
      item.append(square, label);
      return item;
    });
    document.getElementById("legend").replaceChildren(...items);
  }

  describe() {
    const { columnSeconds, cellNanoseconds, rows, note } = this.model.head;
    const column = columnSeconds === 1 ? "a second" : `${columnSeconds} s`;
    document.getElementById("time-note").textContent =
      `Each column is ${column}, in ${rows} cells of ${cellNanoseconds / 1e6} ms from its beginning upwards. Drag over cells, click two, ` +
      `or use arrow keys and Enter, to see the samples in between below.`;
    document.getElementById("cut").textContent = note;
    document.getElementById("cut").hidden = note === "";
  }

  /** Searches: `isFound(function)` says what is searched for. */
  find(text, isFound) {
    const box = document.getElementById("search");
    if (box.value !== text) box.value = short(text, 400);
    const { functionName, frameFunction } = this.model.head;
    const functions = functionName.map((_, i) => (isFound(i) ? 1 : 0));
    this.table.setFound(functions);
    this.graph.setFound(frameFunction.map((of) => (of >= 0 ? functions[of] : isFound(of) ? 1 : 0)));
    this.tellFound();
  }

  search() {
    const query = document.getElementById("search").value;
    const { functionName, markName } = this.model.head;
    try {
      if (query === "") return this.clear();
      const matches = searched(query);
      this.find(query, (of) => matches(of >= 0 ? functionName[of] : markName[-1 - of]));
    } catch (error) {
      this.clear();
      document.getElementById("matched").textContent = error.message;
    }
  }

  clear() {
    this.table.setFound(null);
    this.graph.setFound(null);
    this.tellFound();
  }

  tellFound() {
    const { graph } = this;
    let text = "";
    if (graph.found) {
      const { sum, whole } = graph.foundShare();
      text = sum > 0 ? `${percent(sum, whole)} of what is shown: ${counted(sum, "sample")}` : "not found in what is shown";
    }
    document.getElementById("matched").textContent = text;
  }

  listen() {
    document.getElementById("search").addEventListener("input", () => this.search());
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
        event.preventDefault();
        document.getElementById("search").focus();
      } else if (event.key === "Escape") {
        // Else the browser empties the search box, too.
        event.preventDefault();
        this.escape();
      }
    });
    addEventListener("resize", () => this.resize());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.resize());
  }

  resize() {
    this.heat?.resize();
    this.graph.update();
  }

  /** Takes back one thing: a zoom, else a search, else a selection. */
  escape() {
    const box = document.getElementById("search");
    if (this.graph.zoomed !== 0) {
      this.graph.reset();
      this.graph.update();
    } else if (box.value !== "") {
      box.value = "";
      this.clear();
    } else if (this.heat?.isUsed()) {
      this.heat.all();
    }
  }
}

async function start() {
  const problem = document.getElementById("problem");
  const data = document.getElementById("data");
  try {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser cannot unpack it (no DecompressionStream): use one of 2023 or later");
    }
    const bytes = await unpack(data.textContent);
    data.textContent = "";
    document.getElementById("page").hidden = false;
    new Page(new Model(bytes));
  } catch (error) {
    document.getElementById("page").hidden = true;
    problem.textContent = `The data of this page cannot be shown: ${error.message}`;
    problem.hidden = false;
  }
}

start();
