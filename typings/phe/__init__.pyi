# What Reticent uses of phe, which has no types of its own.
from phe.paillier import EncryptedNumber as EncryptedNumber
from phe.paillier import PaillierPrivateKey as PaillierPrivateKey
from phe.paillier import PaillierPublicKey as PaillierPublicKey
