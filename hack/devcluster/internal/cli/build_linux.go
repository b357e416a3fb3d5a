package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/imagetar"
)

func (a *app) buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build what is missing into the cache and print its folder",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := builder.New(cmd.Context(), os.Stderr)
			if err != nil {
				return err
			}
			if err := b.Build(cmd.Context()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), b.Dir())
			return err
		},
	}
}

func (a *app) assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print a folder with etcd, kube-apiserver and kubectl for envtest",
		Long:  "Print a folder with etcd, kube-apiserver and kubectl for envtest (KUBEBUILDER_ASSETS). What is missing is built; root is not needed.",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := builder.New(cmd.Context(), os.Stderr)
			if err != nil {
				return err
			}
			dir, err := b.Assets(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}

// imageCommand has a --name of its own, that of the image, as no cluster is needed.
func (a *app) imageCommand() *cobra.Command {
	var out string
	var image imagetar.Image
	cmd := &cobra.Command{
		Use:   "image --out X.tar --name localhost/x:dev FILE[:TARGET]...",
		Short: "Write files as a container image, a docker-archive",
		Long: "Write files as a container image, a docker-archive. TARGET is an absolute path in the image and\n" +
			"defaults to the file's name in /. A static binary needs no other file. The same files give the same archive.",
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" || image.Name == "" {
				return usagef("image needs --out and --name: see devcluster image --help")
			}
			if len(args) == 0 && image.Base == "" {
				return usagef("image needs a FILE[:TARGET] or a --base: see devcluster image --help")
			}
			image.Files = args
			if err := image.Validate(); err != nil {
				return usageError{err}
			}
			if err := imagetar.Write(out, image); err != nil {
				return fmt.Errorf("cannot write the image: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "archive to write")
	flags.StringVar(&image.Name, "name", "", "name of the image, such as localhost/x:dev")
	flags.StringVar(&image.User, "user", "", "UID or UID:GID to run as (default root)")
	flags.StringVar(&image.Entrypoint, "entrypoint", "", "path in the image to run (default the first file)")
	flags.StringVar(&image.Base, "base", "", "tar file with a root filesystem below the files")
	flags.StringArrayVar(&image.Env, "env", nil, "K=V for the environment; may be repeated")
	return cmd
}
