package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// process is the peer as the measuring process sees it.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	to      *json.Encoder
	from    *json.Decoder
	address []byte
}

func start(c *exec.Cmd) (*process, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	p := &process{command: c, in: in, to: json.NewEncoder(in), from: json.NewDecoder(out)}
	var first answer
	if err := p.from.Decode(&first); err != nil {
		p.stop()
		return nil, fmt.Errorf("the peer has ended: %w", err)
	}
	p.address = first.Address
	return p, nil
}

func (p *process) ask(a ask) (answer, error) {
	if err := p.to.Encode(a); err != nil {
		return answer{}, fmt.Errorf("ask the peer: %w", err)
	}
	var reply answer
	if err := p.from.Decode(&reply); err != nil {
		return answer{}, fmt.Errorf("the peer has ended: %w", err)
	}
	if reply.Error != "" {
		return answer{}, errors.New(reply.Error)
	}
	return reply, nil
}

func (p *process) stop() {
	p.in.Close()     //nolint:errcheck // the peer ends at its end
	p.command.Wait() //nolint:errcheck // likewise
}
