// A question: radio buttons or a number field, Check, and feedback that comes from the kernel.

const SYMBOL = { right: "\u2713", wrong: "\u2717", open: "\u2026" };
let count = 0;

/** An element with attributes. JupyterLab takes arrow keys and space from whoever does not ask it not to. */
function make(tag, attributes = {}, html = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (tag === "input" || tag === "button") element.dataset.lmSuppressShortcuts = "true";
  element.innerHTML = html;
  return element;
}

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

function render({ model, el }) {
  const form = make("form", { class: "ni-predict" });
  const fieldset = make("fieldset");
  const options = model.get("options");
  const fields = options.length ? choices(options) : numberField();
  const check = make("button", { type: "submit" }, "Check");
  const status = make("div", { role: "status", tabindex: "-1" });
  fieldset.append(make("legend", {}, `<b>Predict:</b> ${model.get("question")}`), ...fields);
  form.append(fieldset, check, status);
  el.append(form);

  const inputs = [...fieldset.querySelectorAll("input")];
  const chosen = () => (options.length ? inputs.find((input) => input.checked) : inputs[0])?.value ?? "";

  function showFeedback() {
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
    if (!given) {
      status.textContent = options.length ? "Choose one first." : "Type a number first.";
      return;
    }
    if (model.get("given") === given) {
      model.set("given", ""); // asked again: the kernel hears changes only
      model.save_changes();
    }
    model.set("given", given);
    model.save_changes();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault(); // JupyterLab keeps some fields from sending their form
    form.requestSubmit();
  });
  model.on("change:feedback", showFeedback);
  if (model.get("given")) {
    for (const input of inputs) {
      if (options.length) input.checked = input.value === model.get("given");
      else input.value = model.get("given");
    }
  }
  showFeedback();
  return () => model.off("change:feedback", showFeedback);
}

export default { render };
