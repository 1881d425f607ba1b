"""Why a claim outside its bar need not be wrong."""
