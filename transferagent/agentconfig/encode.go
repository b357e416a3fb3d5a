package agentconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// oldest is the oldest version that Parse accepts: the one before Version, once
// there is one.
const oldest = max(1, Version-1)

// Encode returns the JSON document for the environment variable. An error says
// that the configuration is not valid or does not fit MaxBytes.
func (c *Config) Encode() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's configuration: %w", err)
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("configuration has %d bytes, the limit is %d", len(b), MaxBytes)
	}
	return b, nil
}

// Parse reads the document of this version or the one before. In a document of
// this version a field that this version does not know is an error: it would have
// no effect. Parse does not call Validate.
func Parse(b []byte) (*Config, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("configuration has %d bytes, the limit is %d", len(b), MaxBytes)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := decode(b, &head, false); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if head.Version < oldest || head.Version > Version {
		return nil, fmt.Errorf("configuration has version %d, this agent accepts %d to %d", head.Version, oldest, Version)
	}
	c := new(Config)
	if err := decode(b, c, head.Version == Version); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return c, nil
}

// decode reads the one JSON value that b consists of.
func decode(b []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
