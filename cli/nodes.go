package cli

import (
	"context"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Devices says whether the nodes have the GPUs of a pool.
type Devices struct {
	Available bool   `json:"available"`
	Message   string `json:"message"`
}

func (o Options) inventory(_ context.Context, _ checkFlags) (func(*v1alpha1.PDPool) *Devices, error) {
	return nil, nil
}

func (p *page) devices(d Devices) {
	word, colour := "gpus  ", green
	if !d.Available {
		colour = yellow
	}
	p.printf("  %s  %s\n", p.paint(colour, word), d.Message)
}
