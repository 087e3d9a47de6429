// A question: radio buttons or a number field, Check, and feedback that comes from the kernel.

const SYMBOL = { right: "\u2713", wrong: "\u2717", open: "\u2026" };
let count = 0;

/** @typedef {{get(key: string): any, set(key: string, value: any): void, save_changes(): void, on(name: string, f: () => void): void, off(name: string, f: () => void): void}} Model */

/**
 * An element with attributes. JupyterLab takes arrow keys and space unless the element asks it not to.
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {{[name: string]: string}} attributes
 * @param {string} html markup that the kernel has made safe
 */
function make(tag, attributes = {}, html = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (tag === "input" || tag === "button") element.dataset.lmSuppressShortcuts = "true";
  element.innerHTML = html;
  return element;
}

/** @param {{value: string, html: string}[]} options */
function choices(options) {
  const name = `ni-question-${Date.now()}-${count++}`;
  return options.map(({ value, html }) => {
    const label = make("label");
    const input = make("input", { type: "radio", name });
    input.value = value;
    label.append(input, make("span", {}, html));
    return label;
  });
}

function numberField() {
  const label = make("label", {}, "Your number ");
  label.append(make("input", { type: "number", step: "any", autocomplete: "off" }));
  return [label];
}

/** The fields of a question, and what stands in them. @param {Model} model */
function fieldsOf(model) {
  const options = model.get("options");
  const fieldset = make("fieldset");
  fieldset.append(make("legend", {}, `<b>Predict:</b> ${model.get("question")}`), ...(options.length ? choices(options) : numberField()));
  const inputs = [...fieldset.querySelectorAll("input")];
  const given = model.get("given");
  for (const input of given ? inputs : []) {
    if (options.length) input.checked = input.value === given;
    else input.value = given;
  }
  const chosen = () => (options.length ? inputs.find((input) => input.checked) : inputs[0])?.value ?? "";
  return { fieldset, inputs, chosen, missing: options.length ? "Choose one first." : "Type a number first." };
}

/** Hands an answer to the kernel, which hears changes only: the same one again comes after none. @param {Model} model @param {string} given */
function answer(model, given) {
  for (const value of model.get("given") === given ? ["", given] : [given]) {
    model.set("given", value);
    model.save_changes();
  }
}

/** @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const form = make("form", { class: "ni-predict" });
  const { fieldset, inputs, chosen, missing } = fieldsOf(model);
  const check = make("button", { type: "submit" }, "Check");
  const status = make("div", { role: "status", tabindex: "-1" });
  form.append(fieldset, check, status);
  el.append(form);

  function showFeedback() {
    /** @type {{kind: keyof typeof SYMBOL, words: string, why: string}} */
    const { kind, words, why } = model.get("feedback");
    if (!kind) return;
    status.dataset.kind = kind;
    status.innerHTML = `<p><b>${SYMBOL[kind]} ${words}</b></p>${why}`;
    const closed = kind !== "open";
    for (const input of inputs) input.disabled = closed;
    if (closed && document.activeElement === check) status.focus();
    check.hidden = closed;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = chosen();
    if (given) answer(model, given);
    else status.textContent = missing;
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.target instanceof HTMLInputElement)) return;
    event.preventDefault(); // JupyterLab keeps some fields from sending their form
    form.requestSubmit();
  });
  model.on("change:feedback", showFeedback);
  showFeedback();
  return () => model.off("change:feedback", showFeedback);
}

export default { render };
