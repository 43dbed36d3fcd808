"use strict";
/* Not in the page, because its policy refuses inline scripts. */
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
    docExpansion: "none", // drawing everything takes a second longer
    validatorUrl: null, // a validator would send the address of this page to another host
});
