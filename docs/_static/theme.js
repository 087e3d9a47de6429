// Tells the explorers on a page which theme the reader has chosen: they look for what JupyterLab writes on the body.
document.addEventListener("DOMContentLoaded", () => {
  const tell = () => {
    const chosen = document.body.dataset.theme;
    if (chosen === "light" || chosen === "dark") document.body.dataset.jpThemeLight = String(chosen === "light");
    else delete document.body.dataset.jpThemeLight;
  };
  new MutationObserver(tell).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
  tell();
});
