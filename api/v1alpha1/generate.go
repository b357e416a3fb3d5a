package v1alpha1

//go:generate go tool -modfile=../../go.tools.mod controller-gen object:headerFile=../../hack/gen/header.txt paths=.
//go:generate go tool -modfile=../../go.tools.mod controller-gen crd:maxDescLen=1024 paths=. output:crd:dir=../../config/crd/bases
