// Everything that would load something from another host is off: fonts, telemetry, the
// proxy for requests, the links to hosted clients and assistants. The page's
// Content-Security-Policy forbids it as well, and a test checks both.
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
  // Each operation has its own choice of a client; the introduction's would be empty.
  customCss: ".scalar-reference-intro-clients { display: none }",
});
