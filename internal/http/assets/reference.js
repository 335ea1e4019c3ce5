// Everything that would ask another host for something is off: fonts, telemetry,
// the proxy for requests, the links to hosted clients and assistants. The page's
// Content-Security-Policy forbids it as well, and a test watches.
Scalar.createApiReference("#reference", {
  url: "/openapi.json",
  agent: { disabled: true },
  mcp: { disabled: true },
  telemetry: false,
  proxyUrl: "",
  withDefaultFonts: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  persistAuth: false,
  documentDownloadType: "direct",
  operationTitleSource: "summary",
  orderSchemaPropertiesBy: "preserve",
  orderRequiredPropertiesFirst: false,
  expandAllResponses: false,
  theme: "default",
  // The introduction's panel to choose a client in says nothing else; each operation has its own.
  customCss: ".scalar-reference-intro-clients { display: none }",
});
