"use strict";
/* Here, and not in the page: its policy lets nothing inline run. */
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "none", // all at once takes a second longer to draw
  validatorUrl: null, // it would send the address of this page elsewhere
});
