// ESLint rather than Biome: it counts complexity as Ruff does for the Python half, and has run on plain Node since 2013,
// without a binary for each platform. Layout is left to the author: no rule here is about where a brace goes.
import js from "@eslint/js";

const browser = `atob Blob cancelAnimationFrame clearTimeout DecompressionStream document DOMMatrix Element HTMLElement HTMLInputElement matchMedia
  MutationObserver Path2D performance requestAnimationFrame ResizeObserver Response setTimeout structuredClone
  TextDecoder window`;
const node = "process URL";
const names = (text) => Object.fromEntries(text.split(/\s+/).map((name) => [name, "readonly"]));

export default [
  js.configs.recommended,
  {
    // Only what is named here is a global: a forgotten `name`, `event` or `status` would otherwise be the window's.
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: names(browser) },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      complexity: ["error", 10],
      "max-lines-per-function": ["error", { max: 45, skipBlankLines: true, skipComments: true }],
      "max-lines": ["error", 250],
      eqeqeq: "error",
      "no-shadow": "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "no-restricted-syntax": ["error", { selector: "ExportNamedDeclaration[declaration=null]", message: "Export where it is declared." }],
    },
  },
  {
    files: ["**/explore/web/**"],
    rules: {
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property, message: "Texts enter as textContent." })),
      ],
    },
  },
  { files: ["**/tests/web/**"], languageOptions: { globals: names(node) } },
];
