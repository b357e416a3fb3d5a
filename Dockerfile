# syntax=docker/dockerfile:1
# One target per image: docker build --target manager -t pdpool/manager .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=v0.1.0-dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
RUN go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ \
    ./cmd/manager ./cmd/transfer-agent ./cmd/router ./cmd/enginesim

FROM scratch AS base
USER 65532:65532

FROM base AS manager
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/manager /usr/local/bin/manager
ENTRYPOINT ["/usr/local/bin/manager"]

FROM base AS transfer-agent
COPY --from=build /out/transfer-agent /usr/local/bin/transfer-agent
ENTRYPOINT ["/usr/local/bin/transfer-agent"]

FROM base AS router
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/router /usr/local/bin/router
ENTRYPOINT ["/usr/local/bin/router"]

FROM base AS enginesim
COPY --from=build /out/enginesim /usr/local/bin/enginesim
ENTRYPOINT ["/usr/local/bin/enginesim"]
