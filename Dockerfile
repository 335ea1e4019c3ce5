# The service alone, static, in an image without a shell, as an unprivileged user: docker build . makes it, from the last
# stage. What stands in for Stripe, and what tests the system, have stages and images of their own. docker-compose.yml runs
# them all.

# The images of others, by tag; docker-compose.pinned.yml gives the digests.
ARG GO_IMAGE=golang:1.26
ARG STATIC_IMAGE=gcr.io/distroless/static-debian12:nonroot
ARG NATS_IMAGE=nats:2
# part: proof {
ARG POSTGRES_IMAGE=postgres:17
# part: proof }

# Compiled here for wherever it runs: an image for another platform needs no emulation.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
# Where modules come from, for builds behind a proxy.
ARG GOPROXY=https://proxy.golang.org,direct
COPY go.mod go.sum ./
COPY stripesim/go.mod stripesim/go.sum stripesim/
RUN go mod download
COPY cmd/api cmd/api
COPY db db
COPY deploy/healthcheck deploy/healthcheck
COPY internal internal
# What `api version` prints: the repository is not in the context.
ARG VERSION=
ARG COMMIT=
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -tags brokers -trimpath -ldflags="-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o /out/ ./cmd/api ./deploy/healthcheck

# The broker with a health check: its own image has the server and nothing else,
# no shell and no curl.
FROM ${NATS_IMAGE} AS nats
COPY --from=build /out/healthcheck /usr/local/bin/healthcheck

# What stands in for Stripe, alone: docker build --target stripesim . makes it. It needs no module but its own, so nothing
# is downloaded, and the service's source is not in it. stripesim/README.md is about this image.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS stripesim-build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
COPY stripesim stripesim
COPY cmd/stripesim cmd/stripesim
RUN mkdir /data && CGO_ENABLED=0 GOPROXY=off GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/stripesim ./cmd/stripesim

FROM ${STATIC_IMAGE} AS stripesim
LABEL org.opencontainers.image.title="stripesim" \
    org.opencontainers.image.description="Stripe's PaymentIntents API 2023-10-16, simulated, with faults on demand" \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=stripesim-build /out/stripesim /usr/local/bin/
COPY --from=stripesim-build --chown=65532:65532 /data /data
ENV STRIPESIM_ADDR=:12111 STRIPESIM_ADMIN=:12112 STRIPESIM_STORE=/data/journal STRIPESIM_KEYS=*
EXPOSE 12111 12112
VOLUME /data
USER 65532:65532
HEALTHCHECK --interval=2s --timeout=3s --start-period=10s CMD ["/usr/local/bin/stripesim", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/stripesim"]

# part: proof {
# What plays with the service.
FROM build AS programs
COPY stripesim stripesim
COPY deploy deploy
COPY testkit testkit
COPY cmd cmd
RUN mkdir /data && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/...

FROM ${STATIC_IMAGE} AS demo
COPY --from=programs /out/demo /out/api /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/demo"]

# Chaos and the load test are programs of the module proof, which needs the service's source beside it.
FROM programs AS proof
ARG GOPROXY=https://proxy.golang.org,direct
COPY client client
COPY proof/go.mod proof/go.sum proof/
RUN cd proof && go mod download
COPY loadtest loadtest
COPY proof proof
RUN CGO_ENABLED=0 go build -C proof -trimpath -ldflags='-s -w' -o /proof/chaos ./chaos && \
    CGO_ENABLED=0 go build -C proof -trimpath -ldflags='-s -w' -o /proof/loadtest ./load

# Chaos kills PostgreSQL as well as the API, so it needs the server's programs and
# not another container. The API it builds has a clock that can be set wrong.
FROM proof AS underchaos
RUN /proof/chaos -build /proof/api-under-chaos

FROM ${POSTGRES_IMAGE} AS chaos
COPY --from=proof /proof/chaos /usr/local/bin/
COPY --from=underchaos /proof/api-under-chaos /usr/local/bin/
RUN mkdir /chaos && chown postgres:postgres /chaos
USER postgres
ENV TMPDIR=/chaos
ENTRYPOINT ["/usr/local/bin/chaos", "-program", "/usr/local/bin/api-under-chaos", "-out", "/chaos/out"]
CMD []

# k6 has a stage of its own: it takes two minutes, and changes when its version does. One of that
# version that runs here, as CI has it in bin/, is taken as it is.
FROM ${GO_IMAGE} AS k6
WORKDIR /src
ARG GOPROXY=https://proxy.golang.org,direct
COPY go.mod bin/k6* ./
COPY tools/ tools/
RUN if ./k6 version | grep -F " $(awk '$1 == "go.k6.io/k6" { print $2 }' tools/k6.mod) "; then install -D k6 /out/k6; else \
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -modfile=tools/k6.mod -o /out/k6 go.k6.io/k6; fi

FROM ${STATIC_IMAGE} AS load
COPY --from=k6 /out/k6 /usr/local/bin/
COPY --from=proof /proof/loadtest /usr/local/bin/
COPY --from=programs --chown=65532:65532 /data /data
USER 65532:65532
ENV PATH=/usr/local/bin
ENTRYPOINT ["/usr/local/bin/loadtest"]
# part: proof }

FROM ${STATIC_IMAGE} AS api
COPY --from=build /out/api /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/api"]
CMD ["serve"]
