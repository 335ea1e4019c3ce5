// Everything that would load something from another host is off: fonts, telemetry, the
// proxy for requests, the links to hosted clients and assistants. The page's
// Content-Security-Policy forbids it as well, and a test checks both.
const settings = {
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
};

// The samples begin with this page's own address, and with the key that is given. The key stays in this page: it is not
// stored, and sent to this address only, by the requests that a reader tries here.
async function show() {
  const form = document.querySelector("#key");
  const field = form.elements.key;
  const contract = (await (await fetch("/openapi.json")).text()).replaceAll("http://localhost:8080", location.origin);
  const configured = (key) => ({
    ...settings,
    content: JSON.parse(key ? contract.replaceAll("the_key_that_was_printed", key) : contract),
    servers: [{ url: location.origin }],
    authentication: { preferredSecurityScheme: "apiKey", securitySchemes: { apiKey: { token: key } } },
  });
  const reference = Scalar.createApiReference("#reference", configured(""));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.reportValidity()) reference.updateConfiguration(configured(field.value));
  });
  form.hidden = false;
}

show();
