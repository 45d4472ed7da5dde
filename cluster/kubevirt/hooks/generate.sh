#!/bin/sh
# Writes the zz_*.pb.go files anew. Needs protoc (Debian: protobuf-compiler).
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
rm -f zz_*.pb.go
PATH=$bin:$PATH protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative,use_generic_streams_experimental=true info.proto v1alpha3.proto
for f in *.pb.go; do mv "$f" "zz_$f"; done
