/* Runs before the first paint: sets the theme that was chosen last, or the system's. */
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem("acker.theme");
  } catch (error) {
    chosen = null;
  }
  var dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen === "dark" || chosen === "light" ? chosen : dark ? "dark" : "light";
})();
