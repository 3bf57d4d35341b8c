"""What makes a site and pictures of the documentation. Not part of the package."""
