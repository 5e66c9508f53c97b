# The programs of Sandyard on an empty base. All of them are in the one image; what a container is, its command says.

# local: from programs already in bin/, with no registry needed (make compose-image).
FROM scratch AS local
COPY bin/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY bin/ /
USER 65532:65532
CMD ["/sandyard", "version"]

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/bin/ /
USER 65532:65532
CMD ["/sandyard", "version"]
